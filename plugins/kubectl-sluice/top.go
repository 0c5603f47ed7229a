package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/fleetview"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func newTop(to *cluster) *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Show what nodes offer, sell, use and take back",
		Long: `Show for each node its use, what it offers to batch work, what batch pods
request and use, how often batch work was squeezed and evicted in 24 hours, and
the services that batch work disturbs. Nodes with trouble come first.

It runs 'sluice status' in the plugin's pod of each node. It needs the rights to
list nodes, and to list pods and create pods/exec in Sluice's namespace.

Exit status: 0 all nodes answered, 1 at least one did not, 2 invalid command line.`,
		Example: `  kubectl sluice top
  kubectl sluice top -l node-role.kubernetes.io/worker --sort cpu
  kubectl sluice top --watch
  kubectl sluice top -o json | jq '.nodes[] | select(.disturbed != [])'`,
		Args: cli.FlagsAlone,
	}
	a := askFlags(c, to)
	order := cli.ChoiceFlag(c, "sort", "", "order of the nodes, the largest first", fleet.ByTrouble, fleet.ByName, fleet.ByCPU, fleet.ByMemory, fleet.ByOffer, fleet.BySold)
	watch := c.Flags().BoolP("watch", "w", false, "show it again and again")
	every := c.Flags().Duration("interval", 5*time.Second, "with --watch: pause of this `duration`")
	output := cli.OutputFlag(c, "table", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		client, err := to.connect()
		if err != nil {
			return err
		}
		for {
			load, err := a.load(c.Context(), client, order.String())
			if err != nil || *watch && c.Context().Err() != nil {
				return err
			}
			if output.String() == "json" {
				err = terminal.JSON(c.OutOrStdout(), load)
			} else {
				if *watch {
					home(c.OutOrStdout())
				}
				err = fleetview.Load(c.OutOrStdout(), load)
			}
			if err != nil || !*watch {
				return firstOf(err, verdict(&load.Asked))
			}
			select {
			case <-c.Context().Done():
				return nil
			case <-time.After(max(*every, time.Second)):
			}
		}
	}
	return c
}

// load asks the nodes for their status.
func (a *asking) load(ctx context.Context, client *kube.Fleet, order string) (*fleet.Load, error) {
	pods, asked, err := a.plugins(ctx, client)
	if err != nil {
		return nil, err
	}
	nodes, failed := a.loads(ctx, client, pods)
	asked.Failed = failed
	return fleet.LoadOfAll(nodes, asked, order), nil
}

// loads asks the nodes of these pods for their status.
func (a *asking) loads(ctx context.Context, client *kube.Fleet, pods []fleet.Pod) ([]*fleet.NodeLoad, []fleet.Failure) {
	return ask(ctx, a, client, pods, []string{"status", "-o", "json"}, func(node string, p *kube.Printed) (*fleet.NodeLoad, error) {
		s, err := readStatus(p)
		if err != nil {
			return nil, err
		}
		return fleet.LoadOf(node, s)
	})
}

// readStatus reads what 'sluice status -o json' printed.
func readStatus(p *kube.Printed) (*status.Status, error) {
	if err := succeeded(p); err != nil {
		return nil, err
	}
	version, err := decode[struct {
		Schema  int    `json:"schema"`
		Version string `json:"version"`
	}](p)
	if err != nil {
		return nil, err
	}
	if version.Schema != status.Schema {
		return nil, fmt.Errorf("the node runs sluice %.40q, whose status has schema %d, and this program reads schema %d: use the kubectl-sluice of that version", version.Version, version.Schema, status.Schema)
	}
	return decode[status.Status](p)
}

// home moves to the upper left corner of a terminal, and clears what is below.
func home(w io.Writer) {
	if file, ok := w.(*os.File); ok && term.IsTerminal(file.Fd()) {
		fmt.Fprint(file, "\x1b[H\x1b[J")
	}
}
