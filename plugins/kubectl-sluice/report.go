package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/fleetview"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newReport(to *cluster) *cobra.Command {
	var by, perCPU string
	var nodes, asks bool
	c := &cobra.Command{
		Use:   "report",
		Short: "Show what the nodes could sell to batch work",
		Long: `Show for each node group what its nodes have, what pods request, what is used,
and what could be sold to batch work, now and for long. Nodes in preview count:
they sell nothing, and say what they could sell. For nodes that do not sell, it
shows the reason. Free capacity is stranded where a node has CPU to sell without
memory beside it, or the reverse.

With --ask-nodes it also shows what batch work got in the last 24 hours, how often
it was squeezed and evicted, and what the nodes advise, for example which pods
request much more than they use.

It needs the rights to list nodes, and pods in Sluice's namespace; with
--ask-nodes, also to create pods/exec there.

Exit status: 0 success, 1 failure, or an asked node that did not answer, 2 invalid
command line.`,
		Example: `  kubectl sluice report
  kubectl sluice report --nodes -l node-role.kubernetes.io/worker
  kubectl sluice report --by topology.kubernetes.io/zone
  kubectl sluice report --memory-per-cpu 8Gi --ask-nodes
  kubectl sluice report -o json | jq .total.sellable.shortTerm`,
		Args: cli.FlagsAlone,
	}
	a := askFlags(c, to)
	f := c.Flags()
	f.StringVar(&by, "by", "", "group the nodes by this `label` (default: the node groups of the chart)")
	f.BoolVar(&nodes, "nodes", false, "show each node")
	f.BoolVar(&asks, "ask-nodes", false, "also show what batch work got and cost, and advice, which only the nodes know")
	f.StringVar(&perCPU, "memory-per-cpu", "", "`amount` of memory for each CPU of the pods for which capacity is stranded (default: the mean of what batch pods request, or 4Gi)")
	output := cli.OutputFlag(c, "table", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		memoryPerCPU, err := memoryOf(perCPU)
		if err != nil {
			return err
		}
		client, err := to.connect()
		if err != nil {
			return err
		}
		all, err := client.Nodes(c.Context(), a.selector)
		if err != nil {
			return err
		}
		pods, err := client.Pods(c.Context(), a.namespace)
		if err != nil {
			return err
		}
		summary := fleet.Summarize(all, pods, by, memoryPerCPU)
		asked := fleet.Asked{}
		if asks {
			var plugins []fleet.Pod
			var loads []*fleet.NodeLoad
			plugins, asked.Without = fleet.Plugins(all, pods)
			loads, asked.Failed = a.loads(c.Context(), client, plugins)
			summary.AddBenefit(loads, asked)
		}
		if output.String() == "json" {
			err = terminal.JSON(c.OutOrStdout(), summary)
		} else {
			err = fleetview.Summary(c.OutOrStdout(), summary, nodes, time.Now())
		}
		return firstOf(err, verdict(&asked))
	}
	return c
}

// memoryOf reads an amount of memory for each CPU; 0 if none is given.
func memoryOf(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	amount, err := resource.ParseQuantity(text)
	if bytes := amount.Value(); err == nil && bytes >= 1<<20 && bytes <= 1<<50 {
		return bytes, nil
	}
	return 0, fmt.Errorf("--memory-per-cpu is %.40q, and must be an amount of memory from 1Mi to 1Pi, as 4Gi", text)
}
