package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
)

func newUninstall() *cobra.Command {
	var node, kubeconfig string
	var all, topology bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what was published on this node, or on all nodes",
		Long: `Remove from nodes what sluice-kube has published: resources, conditions, the
report and its NodeResourceTopology. Running pods with these resources stay. Stop 'sluice-kube run' before, or
it publishes again.`,
		Example: `  # this node, in a pod with NODE_NAME
  sluice-kube uninstall

  # all nodes, with an administrator's kubeconfig
  sluice-kube uninstall --all-nodes --kubeconfig admin.conf

  # the NodeResourceTopologies alone, while 'sluice-kube run' goes on without --topology
  sluice-kube uninstall --all-nodes --topology --kubeconfig admin.conf`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if node == "" && !all {
				return errNoNode
			}
			client, err := kube.NewClient(kubeconfig, node, buildinfo.Version())
			if err != nil {
				return err
			}
			nodes := []string{node}
			if all {
				if nodes, err = client.Nodes(c.Context()); err != nil {
					return fmt.Errorf("the list of nodes: %w", err)
				}
			}
			remove, left := client.Withdraw, "nothing of Sluice"
			if topology {
				remove, left = client.WithdrawTopology, "no NodeResourceTopology of Sluice"
			}
			if all {
				remove = unlessGone(remove)
			}
			return withdraw(c, left, remove, nodes)
		},
	}
	nodeFlag(cmd, &node)
	kubeconfigFlag(cmd, &kubeconfig)
	cmd.Flags().BoolVar(&all, "all-nodes", false, "all nodes of the cluster")
	cmd.Flags().BoolVar(&topology, "topology", false, "remove the NodeResourceTopology alone")
	return cmd
}

// unlessGone takes it for success that a node is gone: nodes go while the others are dealt with, and what was published
// on them goes with them.
func unlessGone(remove func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, node string) error {
		err := remove(ctx, node)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// withdraw goes on with the other nodes where one fails.
func withdraw(c *cobra.Command, left string, remove func(context.Context, string) error, nodes []string) error {
	var errs []error
	for _, name := range nodes {
		err := remove(c.Context(), name)
		switch {
		case errors.Is(err, context.Canceled):
			return err
		case err != nil:
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		default:
			fmt.Fprintf(c.OutOrStdout(), "node %s: %s is published\n", name, left)
		}
	}
	return errors.Join(errs...)
}
