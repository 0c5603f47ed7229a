package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay -f recording.jsonl",
		Short: "Simulate policies on a recorded load",
		Long: `Run the plugin's agent on a simulation of the recorded machine, with containers
that demand what the recorded ones used, and report how each policy would have
done, as 'sluice sim' does. Nothing on this machine is read or changed. Both
forms of recordings can be replayed.

A recording does not contain response times. The simulation assumes that every
online container serves requests of --service CPU time each, and that 99 % of
them should be answered within --slo. Nor does it contain demand that was not
met: where a container waited for CPU, its recorded use is raised in proportion
to the share of time it waited. Of a recording of days only the mean and the
highest 5 seconds of each interval are known: the highest are put somewhere into
the interval, for each container by itself.`,
		Example: `  sluice replay -f recording.jsonl
  sluice replay -f recording.jsonl -c sluice.yaml --svg pools.svg
  sluice replay -f days.rec --policy suppression,pools
  sluice replay -f recording.jsonl --service 5ms --slo 60ms`,
		Args: cli.FlagsAlone,
	}
	output := cli.OutputFlag(c, "table", "json")
	f := c.Flags()
	file := f.StringP("file", "f", "", "recording `file`; - is standard input")
	configFile := f.StringP("config", "c", "", "configuration `file` (default: the built-in one)")
	names := f.StringSlice("policy", nil, "policies to run (default: all)")
	service := newServiceFlags(c)
	svg := f.String("svg", "", "draw the pools over time into this `file`")
	required(c, "file")
	c.RunE = func(c *cobra.Command, _ []string) error {
		policies, err := sim.ParsePolicies(*names)
		if err != nil {
			return err
		}
		cfg, _, err := config.Load(*configFile)
		if err != nil {
			return err
		}
		text, err := readLoad(c, *file)
		if err != nil {
			return err
		}
		s, err := sim.LoadRecording(bytes.NewReader(text), cfg, service.of())
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		out := &simOutput{c.OutOrStdout(), output.String(), false, policies, nil}
		if err := (simulation{filepath.Base(*file), s, policies, false, *svg, out}).run(c); err != nil {
			return err
		}
		return out.end()
	}
	return c
}
