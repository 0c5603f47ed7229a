// Command kubectl-sluice shows an operator what Sluice does on the nodes of a cluster. kubectl finds
// it by its name, as "kubectl sluice".
package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Errs: os.Stderr}))
}

// execute runs a command line and returns the exit status.
func execute(ctx context.Context, args []string, streams cli.Streams) int {
	root := &cobra.Command{
		Use:         "kubectl-sluice",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sluice"},
		Short:       "Show what Sluice does on the nodes of a cluster",
		Long: `kubectl sluice shows what Sluice does on the nodes of a cluster, by your kubeconfig
and with your rights. 'report' reads the API server alone unless --ask-nodes is
given; the others also run commands in Sluice's pods, as kubectl exec does.

Exit status: 0 success, 1 failure, 2 invalid command line.`,
	}
	to := &cluster{}
	flags := root.PersistentFlags()
	flags.StringVar(&to.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: as kubectl)")
	flags.StringVar(&to.context, "context", "", "context of the kubeconfig (default: the current one)")
	root.AddCommand(newReport(to), newTop(to), newExplain(to), newLog(to), newDoctor(to), newBatch(to), cli.NewVersion("kubectl sluice"))
	return cli.Execute(ctx, root, args, streams)
}

// cluster is which cluster a command is about.
type cluster struct{ kubeconfig, context string }

// connect returns a client of the cluster.
func (c *cluster) connect() (*kube.Fleet, error) {
	return kube.NewFleet(c.kubeconfig, c.context, buildinfo.Version())
}
