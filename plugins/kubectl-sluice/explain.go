package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// podFlags adds the flags of a command about a pod, whose namespace -n names, as for kubectl.
func podFlags(c *cobra.Command, to *cluster) (a *asking, namespace *string) {
	a = &asking{to: to}
	namespace = c.Flags().StringP("namespace", "n", "", "`namespace` of the pod (default: the context's)")
	c.Flags().StringVar(&a.namespace, "sluice-namespace", "sluice", "`namespace` of Sluice")
	a.timeoutFlag(c)
	return a, namespace
}

func newExplain(to *cluster) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain POD[/CONTAINER]",
		Short: "Explain the settings of a pod's containers, and what was done to it",
		Long: `Find the node of a pod, and show what 'sluice explain' says there: the settings
of the pod's containers with their reasons, what they use, which batch pods
disturb them, and the control loop's latest decisions about them.

It needs the rights to get the pod, and to list pods and create pods/exec in
Sluice's namespace.

Exit status: 0 success, 1 failure, 2 invalid command line.`,
		Example: `  kubectl sluice explain db-0 -n data
  kubectl sluice explain db-0/main -n data
  kubectl sluice explain db-0 -n data -o json | jq '.[].why'`,
		Args: onePod,
	}
	a, namespace := podFlags(c, to)
	output := cli.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := to.connect()
		if err != nil {
			return err
		}
		pod := podOf(client, *namespace, args[0])
		node, err := client.NodeOf(c.Context(), pod.namespace, pod.name)
		if err != nil {
			return err
		}
		if node == "" {
			return fmt.Errorf("pod %s/%s runs on no node yet: 'kubectl -n %s describe pod %s' has the scheduler's reason", pod.namespace, pod.name, pod.namespace, pod.name)
		}
		printed, err := a.onNode(c.Context(), client, node, "explain", "-o", output.String(), pod.String())
		if err != nil {
			return err
		}
		if output.String() == "text" {
			return passOn(c.OutOrStdout(), printed.Out)
		}
		answer, err := decode[json.RawMessage](printed)
		if err != nil {
			return fmt.Errorf("node %s: %w", node, err)
		}
		return terminal.JSON(c.OutOrStdout(), answer)
	}
	return c
}

// onePod requires one pod, or one container of a pod.
func onePod(c *cobra.Command, args []string) error {
	if len(args) != 1 || strings.Count(args[0], "/") > 1 || strings.HasPrefix(args[0], "/") {
		return fmt.Errorf("%s takes one pod as POD or POD/CONTAINER, whose namespace -n names, not %q", c.Name(), args)
	}
	return nil
}

// named is a pod, or a container of it.
type named struct{ namespace, name, container string }

func podOf(client *kube.Fleet, namespace, arg string) named {
	n := named{namespace: namespace}
	if namespace == "" {
		n.namespace = client.Namespace
	}
	n.name, n.container, _ = strings.Cut(arg, "/")
	return n
}

// String names it as sluice does.
func (n named) String() string {
	text := n.namespace + "/" + n.name
	if n.container != "" {
		text += "/" + n.container
	}
	return text
}

// onNode runs sluice with these words on one node, where it must succeed.
func (a *asking) onNode(ctx context.Context, client *kube.Fleet, node string, words ...string) (*kube.Printed, error) {
	pods, err := client.Pods(ctx, a.namespace)
	if err != nil {
		return nil, err
	}
	plugins, without := fleet.Plugins([]fleet.Node{{Name: node}}, pods)
	if len(without) > 0 {
		return nil, fmt.Errorf("no pod of Sluice is on node %s in namespace %s: name the namespace of Sluice with --sluice-namespace, or run 'sluice %s' on the node", node, a.namespace, words[0])
	}
	printed, err := a.run(ctx, client, &plugins[0], words)
	if err == nil {
		err = succeeded(printed)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %s", node, short(err.Error()))
	}
	return printed, nil
}

// firstOf returns the first error that is not nil.
func firstOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
