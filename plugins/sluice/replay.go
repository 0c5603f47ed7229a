package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/sim"
)

func newReplay() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay -f recording.jsonl",
		Short: "Try policies on what a node was recorded doing",
		Long: `Run the plugin's own agent on a simulated node of the recorded machine, whose
containers want what the recorded ones used, and tell what each policy would
have made of it, as 'sluice sim' does. Nothing of this machine is read or
changed.

A recording doesn't tell how fast a service answered: all online containers are
taken to serve requests of --service CPU time, 99 % of which are to be answered
within --slo. What a container wanted and did not get isn't recorded either;
where it waited, its use is raised by the share of time in which it did.`,
		Example: `  sluice replay -f recording.jsonl
  sluice replay -f recording.jsonl -c sluice.yaml --svg pools.svg
  sluice replay -f recording.jsonl --service 5ms --slo 60ms`,
		Args: flagsAlone,
	}
	output := outputFlag(c, "table", "json")
	f := c.Flags()
	file := f.StringP("file", "f", "", "recording `file`; - is standard input")
	configFile := f.StringP("config", "c", "", "configuration `file`; else the built-in one")
	names := f.StringSlice("policy", nil, "policies to run (default: all)")
	service := f.Duration("service", 2*time.Millisecond, "CPU time of a request of the online containers")
	slo := f.Duration("slo", 20*time.Millisecond, "time in which 99 % of the requests are to be answered")
	svg := f.String("svg", "", "draw the pools over time into this `file`")
	required(c, "file")
	c.RunE = func(c *cobra.Command, _ []string) error {
		policies, err := parsePolicies(*names)
		if err != nil {
			return err
		}
		cfg, err := loadConfig(*configFile)
		if err != nil {
			return err
		}
		recording, err := readInput(c, *file)
		if err != nil {
			return err
		}
		s, err := sim.LoadRecording(bytes.NewReader(recording), cfg, sim.Service{Time: *service, SLO: *slo})
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		results, err := sim.Compare(ctx, s, policies)
		if err != nil {
			return err
		}
		name := filepath.Base(*file)
		if err := draw(*svg, name, results); err != nil {
			return err
		}
		if output.value == "json" {
			return writeJSON(c.OutOrStdout(), results)
		}
		_, err = io.WriteString(c.OutOrStdout(), simText(name, s, results, false))
		return err
	}
	return c
}
