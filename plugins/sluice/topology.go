package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newTopology() *cobra.Command {
	c := &cobra.Command{
		Use:   "topology",
		Short: "Show the machine's cores, caches and NUMA nodes",
		Long: `Show the machine as Sluice sees it: packages, NUMA nodes with their memory and
distances, L3 caches, cores and devices. It is read from this host's /sys; no
plugin is needed.

Cores are written as their hardware threads: 0-3+8-11 means four cores of two
threads each (CPUs 0 and 8, 1 and 9, and so on); 0-7/2 means four cores whose
two threads have adjacent numbers.`,
		Example: `  sluice topology
  sluice topology -o json
  sluice topology --machine "2 packages 2 nodes 8 cores 2 threads"`,
		Args: cli.FlagsAlone,
	}
	output := cli.OutputFlag(c, "tree", "json")
	from := newMachineFlags(c, "/")
	c.RunE = func(c *cobra.Command, _ []string) error {
		m, err := from.read()
		if err != nil {
			return err
		}
		if output.String() == "json" {
			return terminal.JSON(c.OutOrStdout(), m)
		}
		return m.Tree(c.OutOrStdout())
	}
	return c
}
