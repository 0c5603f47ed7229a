package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/fleetview"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// batchOptions are the flags of 'kubectl sluice batch'.
type batchOptions struct {
	word               string // "" only reads the switch
	length             time.Duration
	evict, dryRun, yes bool
}

func newBatch(to *cluster) *cobra.Command {
	o := &batchOptions{}
	words := []string{"on", "off", "auto"}
	c := &cobra.Command{
		Use:   "batch [on|off|auto]",
		Short: "Stop, allow or show batch work on nodes",
		Long: `Override the configuration for batch work on all nodes, or on those that a
selector matches, as 'sluice batch' does on one:

  off    limit batch work to its floor and refuse new batch pods;
         --evict also evicts the running ones
  on     let batch work run, even while a window of the configuration is open
  auto   remove the override
  (none) show the current state

It shows the outcome by node. Before it switches more than one node, it asks,
unless --yes is given. --dry-run shows which nodes would be switched, and how
they are now.

It runs 'sluice batch' in the plugin's pod of each node. It needs the rights to
list nodes, and to list pods and create pods/exec in Sluice's namespace.

Exit status: 0 all nodes answered and the switch is in force on each as a whole,
or it was only shown; 1 at least one node did not answer or does not follow, or
the question was not answered with yes; 2 invalid command line.`,
		Example: `  kubectl sluice batch
  kubectl sluice batch off -l topology.kubernetes.io/zone=a --dry-run
  kubectl sluice batch off -l topology.kubernetes.io/zone=a --for 1h
  kubectl sluice batch auto --yes -o json`,
		ValidArgs: words,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains(words, args[0]) {
				return fmt.Errorf("batch takes on, off, auto or no word, not %q", args)
			}
			o.word = strings.Join(args, "")
			return o.check(c.Flags().Changed("for"))
		},
	}
	a := askFlags(c, to)
	f := c.Flags()
	f.DurationVar(&o.length, "for", 0, "with on and off: end the override after this `duration`, e.g. 2h")
	f.BoolVar(&o.evict, "evict", false, "with off: also evict the running batch pods")
	f.BoolVar(&o.dryRun, "dry-run", false, "switch nothing: show the nodes, and how they are now")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask before more than one node is switched")
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
		if err := o.confirm(c, pods); err != nil {
			return err
		}
		outcomes, failed := ask(c.Context(), a, client, pods, o.command(), readOutcome)
		asked.Failed = failed
		s := fleet.NewSwitched(o.word, o.dryRun, outcomes, asked)
		if output.String() == "json" {
			err = terminal.JSON(c.OutOrStdout(), s)
		} else {
			err = fleetview.Switched(c.OutOrStdout(), s)
		}
		if err == nil && o.switches() && s.InForce < len(s.Nodes) {
			err = cli.ExitStatus(cli.ExitFailure)
		}
		return firstOf(err, verdict(&s.Asked))
	}
	return c
}

// check returns an error for flags that contradict each other.
func (o *batchOptions) check(hasLength bool) error {
	switch {
	case o.evict && o.word != "off":
		return errors.New("--evict goes with off alone")
	case hasLength && o.word != "on" && o.word != "off":
		return errors.New("--for goes with on or off")
	case hasLength && o.length <= 0:
		return errors.New("--for must be longer than nothing, as 2h")
	case o.dryRun && o.word == "":
		return errors.New("--dry-run goes with on, off or auto: without a word, batch switches nothing")
	}
	return nil
}

// switches reports whether nodes are switched.
func (o *batchOptions) switches() bool { return o.word != "" && !o.dryRun }

// command is what runs on each node.
func (o *batchOptions) command() []string {
	words := []string{"batch", "-o", "json"}
	if !o.switches() {
		return words
	}
	words = append(words, o.word)
	if o.length > 0 {
		words = append(words, "--for", o.length.String())
	}
	if o.evict {
		words = append(words, "--evict")
	}
	return words
}

// confirm asks before more than one node is switched.
func (o *batchOptions) confirm(c *cobra.Command, pods []fleet.Pod) error {
	if !o.switches() || o.yes || len(pods) < 2 {
		return nil
	}
	var nodes []string
	for i := range pods {
		nodes = append(nodes, pods[i].Node)
	}
	fmt.Fprint(c.ErrOrStderr(), fleetview.Question(o.word, o.evict, nodes))
	answer, err := bufio.NewReader(c.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
		return errors.New("nothing was switched: the answer was not yes; --yes leaves the question out, --dry-run shows the nodes")
	}
	return nil
}

// readOutcome reads whether the switch is in force on a node.
func readOutcome(node string, p *kube.Printed) (fleet.Outcome, error) {
	report, err := decodeReport[fleet.BatchReport](p)
	if err != nil {
		return fleet.Outcome{}, err
	}
	return report.Outcome(node), nil
}
