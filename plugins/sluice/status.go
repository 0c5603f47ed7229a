package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newStatus() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the running plugin's pools, pinned CPUs and containers",
		Long: `Show the running plugin: whether it applies changes and if not, why; its
connection to the container runtime; the machine; the pools; the control loop;
and every container with its CPUs.

'sluice explain POD' shows more about one pod.`,
		Example: `  sluice status
  sluice status -o wide
  sluice status -o json | jq .counters
  sluice status -o json | jq .loop.batch`,
		Args: cli.FlagsAlone,
	}
	output := cli.OutputFlag(c, "table", "wide", "json")
	socket := socketFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		s, err := readStatus(*socket)
		if err != nil {
			return err
		}
		if output.String() == "json" {
			return terminal.JSON(c.OutOrStdout(), s)
		}
		return render.Status(c.OutOrStdout(), s, output.String() == "wide")
	}
	return c
}
