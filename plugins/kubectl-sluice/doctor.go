package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/fleetview"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newDoctor(to *cluster) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose all nodes, with the nodes of each finding",
		Long: `Examine nodes as 'sluice doctor' does, and show each finding once, with the nodes
that have it and the fix: first what keeps Sluice from working (fail), then what
works badly, or will soon (warn).

It runs 'sluice doctor' in the plugin's pod of each node, which briefly creates an
empty cgroup there and changes nothing else. It needs the rights to list nodes,
and to list pods and create pods/exec in Sluice's namespace.

Exit status: 0 all nodes answered and no finding is fail, 1 at least one did not
or is; with --strict, warn counts as well; 2 invalid command line.`,
		Example: `  kubectl sluice doctor
  kubectl sluice doctor -l node-role.kubernetes.io/worker --level note
  kubectl sluice doctor --strict -o json | jq '.findings[] | {name, nodes}'`,
		Args: cli.FlagsAlone,
	}
	a := askFlags(c, to)
	level := cli.ChoiceFlag(c, "level", "", "show findings of this level and of worse ones", "warn", "fail", "note", "ok")
	strict := c.Flags().Bool("strict", false, "exit with 1 if there are warnings")
	output := cli.OutputFlag(c, "table", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := to.connect()
		if err != nil {
			return err
		}
		pods, asked, err := a.plugins(c.Context(), client)
		if err != nil {
			return err
		}
		nodes, failed := ask(c.Context(), a, client, pods, []string{"doctor", "-o", "json"}, readFindings)
		asked.Failed = failed
		d := fleet.Diagnose(nodes, asked, level.String())
		if output.String() == "json" {
			err = terminal.JSON(c.OutOrStdout(), d)
		} else {
			err = fleetview.Diagnosis(c.OutOrStdout(), d)
		}
		if err == nil && (d.Counts["fail"] > 0 || *strict && d.Counts["warn"] > 0) {
			err = cli.ExitStatus(cli.ExitFailure)
		}
		return firstOf(err, verdict(&d.Asked))
	}
	return c
}

// readFindings reads what the doctor of a node printed.
func readFindings(node string, p *kube.Printed) (fleet.Findings, error) {
	found, err := decodeReport[fleet.Findings](p)
	if err != nil {
		return fleet.Findings{}, err
	}
	found.Node = node
	return *found, found.Check()
}
