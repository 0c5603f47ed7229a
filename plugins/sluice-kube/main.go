// Command sluice-kube tells Kubernetes what a node sells. It is a program of its own, because
// the client of the API server costs memory that the plugin must not need.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs a command line and returns the exit status.
func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	root := &cobra.Command{
		Use:   "sluice-kube",
		Short: "Publish to Kubernetes what a node sells to batch work",
		Long: `sluice-kube runs beside the plugin, without privileges and with the only token.
It publishes the plugin's offer to batch work as resources of the node.

Exit status: 0 success, 1 failure, 2 invalid command line.`,
	}
	root.AddCommand(newRun(), newUninstall(), newSockets(), cli.NewVersion("sluice-kube"))
	return cli.Execute(ctx, root, args, cli.Streams{In: os.Stdin, Out: out, Errs: errs})
}
