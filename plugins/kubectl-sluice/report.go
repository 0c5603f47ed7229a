package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/fleetview"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newReport(to *cluster) *cobra.Command {
	var selector, by, namespace string
	var nodes bool
	c := &cobra.Command{
		Use:   "report",
		Short: "Show what the nodes could sell to batch work",
		Long: `Show for each node group what its nodes have, what pods request, what is used,
and what could be sold to batch work, now and for long. Nodes in preview count:
they sell nothing, and say what they could sell. For nodes that do not sell, it
shows the reason.

It needs the rights to list nodes, and pods in Sluice's namespace.`,
		Example: `  kubectl sluice report
  kubectl sluice report --nodes -l node-role.kubernetes.io/worker
  kubectl sluice report --by topology.kubernetes.io/zone
  kubectl sluice report -o json | jq .total.sellable.shortTerm`,
		Args: cli.FlagsAlone,
	}
	f := c.Flags()
	f.StringVarP(&selector, "selector", "l", "", "labels of the nodes, as for kubectl get (default: all nodes)")
	f.StringVar(&by, "by", "", "group the nodes by this `label` (default: the node groups of the chart)")
	f.StringVarP(&namespace, "namespace", "n", "sluice", "`namespace` of Sluice")
	f.BoolVar(&nodes, "nodes", false, "show each node")
	output := cli.OutputFlag(c, "table", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := to.connect()
		if err != nil {
			return err
		}
		all, err := client.Nodes(c.Context(), selector)
		if err != nil {
			return err
		}
		pods, err := client.Pods(c.Context(), namespace)
		if err != nil {
			return err
		}
		summary := fleet.Summarize(all, pods, by)
		if output.String() == "json" {
			return terminal.JSON(c.OutOrStdout(), summary)
		}
		return fleetview.Summary(c.OutOrStdout(), summary, nodes, time.Now())
	}
	return c
}
