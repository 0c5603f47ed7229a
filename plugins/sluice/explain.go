package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newExplain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain POD[/CONTAINER]",
		Short: "Explain the settings of a pod's containers",
		Long: `Show the settings of a pod's containers, the reason for each, and the
annotation, label or configuration key it came from, and the keys that concern
the pod and come from a part of the fleet's policy. If the control loop is
enabled, also show what the containers use, which batch pods disturb them, and
the loop's decisions about them.

Name the pod as POD, NAMESPACE/POD, POD/CONTAINER, NAMESPACE/POD/CONTAINER, or
by the first characters of a container ID. If several pods match, explain lists
them.`,
		Example: `  sluice explain db-0
  sluice explain data/db-0/main
  sluice explain 4f1c2a9 -o json`,
		Args: oneWord("the name of one pod or container"),
	}
	output := cli.OutputFlag(c, "text", "json")
	socket := socketFlag(c)
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completePods(*socket, begun), cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		s, err := readStatus(*socket)
		if err != nil {
			return err
		}
		found, err := status.Find(s.Containers, args[0])
		if err != nil {
			return err
		}
		var trail []audit.Entry
		if s.Loop != nil && s.Loop.StateDir != "" {
			trail = audit.Last(os.DirFS(s.Loop.StateDir), audit.Filter{Object: status.PodNames(found)[0]}, render.ExplainedDecisions)
		}
		if output.String() == "json" {
			return render.ExplainJSON(c.OutOrStdout(), s, found, trail)
		}
		return render.Explain(c.OutOrStdout(), s, found, trail)
	}
	return c
}
