package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim/grade"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newGrade() *cobra.Command {
	c := &cobra.Command{
		Use:   "grade -f days.rec",
		Short: "Find in recordings which workloads belong to which pool",
		Long: `Grade the workloads of recordings by what they did: services that are sensitive
to waiting for CPUs, and small, belong to the critical pool; what computes
without a pause and is not sensitive looks like batch work; the rest is online.
The output is a file for 'sluice check' with the classify rules of namespaces
whose workloads are all alike, and with a table of all workloads, with numbers
and reasons, as comments. It is advice: whether work may be evicted, and who
should wait, is for people to decide. Nothing is changed.`,
		Example: `  sluice grade -f days.rec
  sluice grade -f node1.rec -f node2.rec -c /etc/sluice/sluice.yaml
  sluice grade -f days.rec -o json`,
		Args: cli.FlagsAlone,
	}
	output := cli.OutputFlag(c, "table", "json")
	files := c.Flags().StringArrayP("file", "f", nil, "recording `file`; - is standard input; can be given several times")
	configFile := c.Flags().StringP("config", "c", "", "configuration `file` with the pools and earlier rules (default: the built-in one)")
	required(c, "file")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, _, err := config.Load(*configFile)
		if err != nil {
			return err
		}
		var all []*recording.Recording
		for _, file := range *files {
			text, err := readLoad(c, file)
			if err != nil {
				return err
			}
			r, err := recording.Read(bytes.NewReader(text))
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, r)
		}
		workloads := grade.Grades(all)
		rules, mixed := grade.Rules(workloads, cfg)
		part, err := grade.Classify(cfg, rules)
		if err != nil {
			return err
		}
		if output.String() == "json" {
			return terminal.JSON(c.OutOrStdout(), grades{workloads, mixed, part})
		}
		return render.Grades(c.OutOrStdout(), workloads, mixed, part)
	}
	return c
}

// grades is the output of 'sluice grade -o json'.
type grades struct {
	Workloads       []grade.Workload `json:"workloads"`
	MixedNamespaces []string         `json:"mixedNamespaces"` // whose workloads no rule can tell apart
	Config          string           `json:"config"`          // "" if no rule is missing
}
