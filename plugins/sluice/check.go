package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/daemon"
	"github.com/sluice-dev/sluice/topology"
)

func newCheck() *cobra.Command {
	c := &cobra.Command{
		Use:   "check -f sluice.yaml",
		Short: "Check a configuration file for mistakes",
		Long: `Check a configuration file and report every mistake with its line number. With
--machine or --host-root, also check that the CPUs it names exist on that
machine and that its pools fit.

Exit status: 0 the configuration is usable, 1 it is not.`,
		Example: `  sluice check -f /etc/sluice/sluice.yaml
  sluice check -f sluice.yaml --host-root /
  sluice check -f sluice.yaml --machine "2 packages 16 cores 2 threads"`,
		Args: cli.FlagsAlone,
	}
	file := c.Flags().StringP("file", "f", "", "configuration `file`; - is standard input")
	required(c, "file")
	from := newMachineFlags(c, "")
	c.RunE = func(c *cobra.Command, _ []string) error {
		data, err := readInput(c, *file)
		if err != nil {
			return err
		}
		parsed, err := config.Parse(data)
		if err != nil {
			return mistakes(c, *file, err)
		}
		var machine *topology.Machine
		if from.given() {
			if machine, err = from.read(); err != nil {
				return err
			}
		}
		warnings, err := daemon.Check(parsed, machine, from.hostRoot)
		for _, w := range warnings {
			fmt.Fprintf(c.ErrOrStderr(), "%s: warning: %s\n", *file, w)
		}
		if err != nil {
			return mistakes(c, *file, err)
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: ok: %s\n", *file, render.ConfigSummary(parsed, machine))
		return err
	}
	return c
}

// mistakes lists the mistakes in a file, one per line.
func mistakes(c *cobra.Command, file string, err error) error {
	lines := strings.Split(err.Error(), "\n")
	for _, line := range lines {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", file, line)
	}
	return fmt.Errorf("%s can't be used: it has %s", file, humanize.Count(len(lines), "mistake"))
}

// required marks flags as mandatory.
func required(c *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // fails only for an unknown flag
		}
	}
}
