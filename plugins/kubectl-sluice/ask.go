package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

const (
	container = "sluice" // of the plugin's pods
	atOnce    = 16       // nodes that are asked at the same time
	maxWhy    = 400      // characters of a node's reason that are shown
)

// asking is how nodes are asked: by a command in the plugin's pod of each.
type asking struct {
	to        *cluster
	namespace string // of Sluice
	selector  string // of nodes
	timeout   time.Duration
}

// askFlags adds the flags of a command that asks many nodes.
func askFlags(c *cobra.Command, to *cluster) *asking {
	a := &asking{to: to}
	c.Flags().StringVarP(&a.selector, "selector", "l", "", "labels of the nodes, as for kubectl get (default: all nodes)")
	c.Flags().StringVarP(&a.namespace, "namespace", "n", "sluice", "`namespace` of Sluice")
	a.timeoutFlag(c)
	return a
}

func (a *asking) timeoutFlag(c *cobra.Command) {
	c.Flags().DurationVar(&a.timeout, "timeout", 20*time.Second, "wait at most this `duration` for each node")
}

// plugins returns the plugin's pods on the nodes that the selector matches.
func (a *asking) plugins(ctx context.Context, client *kube.Fleet) ([]fleet.Pod, fleet.Asked, error) {
	nodes, err := client.Nodes(ctx, a.selector)
	if err != nil {
		return nil, fleet.Asked{}, err
	}
	pods, err := client.Pods(ctx, a.namespace)
	if err != nil {
		return nil, fleet.Asked{}, err
	}
	plugins, without := fleet.Plugins(nodes, pods)
	switch {
	case len(nodes) == 0:
		err = errors.New("no node matches: see the labels of all nodes with 'kubectl get nodes --show-labels'")
	case len(plugins) == 0:
		err = fmt.Errorf("no pod of Sluice is on these nodes in namespace %s: name the namespace of Sluice with --namespace", a.namespace)
	}
	return plugins, fleet.Asked{Failed: []fleet.Failure{}, Without: without}, err
}

// ask runs sluice with these words in each of the pods, some at the same time, and lets read
// understand what it printed. The answers have the order of the pods, without those that failed.
func ask[T any](ctx context.Context, a *asking, client *kube.Fleet, pods []fleet.Pod, words []string, read func(node string, p *kube.Printed) (T, error)) ([]T, []fleet.Failure) {
	all, errs := make([]T, len(pods)), make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range pods {
		group.Go(func() error {
			printed, err := a.run(ctx, client, &pods[i], words)
			if err == nil {
				all[i], err = read(pods[i].Node, printed)
			}
			errs[i] = err
			return nil
		})
	}
	_ = group.Wait() // the functions note their errors
	var answers []T
	failed := []fleet.Failure{}
	for i, err := range errs {
		if err != nil {
			failed = append(failed, fleet.Failure{Node: pods[i].Node, Why: short(err.Error())})
			continue
		}
		answers = append(answers, all[i])
	}
	return answers, failed
}

// errLate is the cause of an answer that did not come in time.
var errLate = errors.New("it took longer than --timeout allows")

// run runs sluice with these words in a pod.
func (a *asking) run(ctx context.Context, client *kube.Fleet, pod *fleet.Pod, words []string) (*kube.Printed, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, errLate)
	defer cancel()
	return client.Exec(ctx, pod, container, append([]string{"sluice"}, words...))
}

// succeeded returns what a command printed as its error, if it failed.
func succeeded(p *kube.Printed) error {
	if p.Exit == 0 {
		return nil
	}
	if text := strings.TrimSpace(string(p.Errs)); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("the node's command failed with exit status %d, and says nothing", p.Exit)
}

// decode reads the JSON that a node's command printed.
func decode[T any](p *kube.Printed) (*T, error) {
	var answer T
	if err := json.Unmarshal(p.Out, &answer); err != nil {
		return nil, fmt.Errorf("the node's answer is not the JSON that is known: %w; use the kubectl-sluice of the node's version", err)
	}
	return &answer, nil
}

// decodeReport reads the report that a node's command printed. Such a command prints its report and fails if
// something in it is bad, so that its failure counts only if it printed nothing.
func decodeReport[T any](p *kube.Printed) (*T, error) {
	if len(p.Out) == 0 {
		if err := succeeded(p); err != nil {
			return nil, err
		}
	}
	return decode[T](p)
}

// verdict fails if a node gave no answer, which has been shown.
func verdict(a *fleet.Asked) error {
	if len(a.Failed) > 0 {
		return cli.ExitStatus(cli.ExitFailure)
	}
	return nil
}

// passOn prints a node's text without anything that a terminal would interpret: a node may have been
// taken over.
func passOn(w io.Writer, text []byte) error {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		out.WriteString(terminal.Printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// short cuts a text.
func short(text string) string {
	if runes := []rune(text); len(runes) > maxWhy {
		return string(runes[:maxWhy]) + "..."
	}
	return text
}
