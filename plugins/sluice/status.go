package main

import (
	"io"

	"github.com/spf13/cobra"
)

func newStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what the running plugin holds: pools, pins, containers",
		Long: `Show the running plugin: whether it acts and why not, its connection to the
container runtime, the machine, the pools, what the control loop does, and every
container with its CPUs.

'sluice explain POD' tells more of one pod.`,
		Example: `  sluice status
  sluice status -o wide
  sluice status -o json | jq .counters
  sluice status -o json | jq .loop.batch`,
		Args: flagsAlone,
	}
	output := outputFlag(c, "table", "wide", "json")
	socket := socketFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := readStatus(*socket)
		if err != nil {
			return err
		}
		if output.value == "json" {
			return writeJSON(c.OutOrStdout(), s)
		}
		_, err = io.WriteString(c.OutOrStdout(), statusText(s, output.value == "wide"))
		return err
	}
	return c
}
