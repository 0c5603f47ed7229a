package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// logOptions are the flags of 'kubectl sluice log'.
type logOptions struct {
	asking     *asking
	node       string
	since      time.Duration
	why        bool
	controller string
	output     *cli.Choice
}

func newLog(to *cluster) *cobra.Command {
	o := &logOptions{}
	c := &cobra.Command{
		Use:   "log [POD[/CONTAINER]]",
		Short: "Show what was decided about a pod or on a node, and why",
		Long: `Show the control loop's decisions about a pod, or with --node alone all of that
node, oldest first, as 'sluice log' does there. If the pod no longer exists, for
example because it was evicted, all nodes of Sluice are asked.

It needs the rights to get the pod, and to list pods and create pods/exec in
Sluice's namespace.

Exit status: 0 success, 1 failure or a node that did not answer, 2 invalid
command line.`,
		Example: `  kubectl sluice log db-0 -n data --since 1h
  kubectl sluice log crunch-7fxq2 -n etl --why
  kubectl sluice log --node n1 --controller eviction
  kubectl sluice log db-0 -n data -o json | jq .decision.why`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 0:
				return onePod(c, args)
			case o.node == "":
				return errors.New("log takes a pod, or a node with --node")
			}
			return nil
		},
	}
	a, namespace := podFlags(c, to)
	o.asking = a
	f := c.Flags()
	f.StringVar(&o.node, "node", "", "ask this `node` alone")
	f.DurationVar(&o.since, "since", 0, "only decisions of the last `duration`, e.g. 10m or 24h")
	f.StringVar(&o.controller, "controller", "", "only decisions of this controller, e.g. pools or eviction")
	f.BoolVar(&o.why, "why", false, "show the measurements that each decision was based on")
	o.output = cli.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := to.connect()
		if err != nil {
			return err
		}
		node, words := o.node, o.words()
		if len(args) == 0 {
			return o.one(c, client, node, words)
		}
		pod := podOf(client, *namespace, args[0])
		words = append(words, "--pod", pod.String())
		if node == "" {
			node, err = client.NodeOf(c.Context(), pod.namespace, pod.name)
			if errors.Is(err, kube.ErrNoPod) || err == nil && node == "" {
				return o.all(c, client, pod, words)
			}
		}
		if err != nil {
			return err
		}
		return o.one(c, client, node, words)
	}
	return c
}

// words are those of the command on the node.
func (o *logOptions) words() []string {
	words := []string{"log"}
	if o.since != 0 {
		words = append(words, "--since", o.since.String())
	}
	if o.controller != "" {
		words = append(words, "--controller", o.controller)
	}
	return words
}

// one shows what one node has.
func (o *logOptions) one(c *cobra.Command, client *kube.Fleet, node string, words []string) error {
	if o.output.String() == "json" {
		printed, err := o.asking.onNode(c.Context(), client, node, append(words, "-o", "json")...)
		if err != nil {
			return err
		}
		decisions, err := decisionsOf(node, printed)
		if err != nil {
			return fmt.Errorf("node %s: %w", node, err)
		}
		return printAll(c, decisions)
	}
	printed, err := o.asking.onNode(c.Context(), client, node, o.text(words)...)
	if err != nil {
		return err
	}
	return passOn(c.OutOrStdout(), printed.Out)
}

func (o *logOptions) text(words []string) []string {
	if o.why {
		return append(words, "--why")
	}
	return words
}

// all asks every node for a pod that is on none.
func (o *logOptions) all(c *cobra.Command, client *kube.Fleet, pod named, words []string) error {
	plugins, err := o.everywhere(c.Context(), client)
	if err != nil {
		return err
	}
	found, failed := ask(c.Context(), o.asking, client, plugins, append(words, "-o", "json"), func(node string, p *kube.Printed) ([]decision, error) {
		if err := succeeded(p); err != nil {
			return nil, err
		}
		return decisionsOf(node, p)
	})
	decided := false
	for _, decisions := range found {
		if len(decisions) == 0 {
			continue
		}
		decided = true
		if o.output.String() == "json" {
			err = printAll(c, decisions)
		} else {
			fmt.Fprintf(c.OutOrStdout(), "On node %s:\n", terminal.Printable(decisions[0].Node))
			err = o.one(c, client, decisions[0].Node, words)
		}
		if err != nil {
			return err
		}
	}
	for _, f := range failed {
		fmt.Fprintf(c.ErrOrStderr(), "node %s gave no answer: %s\n", terminal.Printable(f.Node), terminal.Printable(f.Why))
	}
	if !decided && o.output.String() == "text" {
		fmt.Fprintf(c.OutOrStdout(), "Pod %s/%s is on no node, and %d of %d nodes have no decision about it.\n", terminal.Printable(pod.namespace), terminal.Printable(pod.name), len(found), len(plugins))
	}
	return verdict(&fleet.Asked{Failed: failed})
}

// everywhere returns the plugin's pods of all nodes.
func (o *logOptions) everywhere(ctx context.Context, client *kube.Fleet) ([]fleet.Pod, error) {
	pods, err := client.Pods(ctx, o.asking.namespace)
	if err != nil {
		return nil, err
	}
	var nodes []fleet.Node
	seen := map[string]bool{"": true}
	for i := range pods {
		if name := pods[i].Node; !seen[name] {
			seen[name] = true
			nodes = append(nodes, fleet.Node{Name: name})
		}
	}
	plugins, _ := fleet.Plugins(nodes, pods)
	if len(plugins) == 0 {
		return nil, fmt.Errorf("the pod does not exist, and no pod of Sluice is in namespace %s, which could tell of it: name the namespace of Sluice with --sluice-namespace", o.asking.namespace)
	}
	return plugins, nil
}

// decision is one line of a node's trail.
type decision struct {
	Node     string          `json:"node"`
	Decision json.RawMessage `json:"decision"`
}

func decisionsOf(node string, p *kube.Printed) ([]decision, error) {
	var all []decision
	for line := range strings.Lines(string(p.Out)) {
		if !json.Valid([]byte(line)) {
			return nil, fmt.Errorf("the line %.60q of the node's answer is no JSON; use the kubectl-sluice of the node's version", line)
		}
		all = append(all, decision{node, json.RawMessage(line)})
	}
	return all, nil
}

func printAll(c *cobra.Command, decisions []decision) error {
	for i := range decisions {
		if err := terminal.JSONLine(c.OutOrStdout(), &decisions[i]); err != nil {
			return err
		}
	}
	return nil
}
