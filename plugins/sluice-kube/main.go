// Command sluice-kube tells Kubernetes what a node sells. It is a program of its own, because
// the client of the API server costs memory that the plugin must not need.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/buildinfo"
)

// These are the exit statuses; success is 0.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs a command line and returns the exit status. An error before a command has
// started is a usage error.
func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	exit := exitUsage
	root := &cobra.Command{
		Use:   "sluice-kube",
		Short: "Publish to Kubernetes what a node sells to batch work",
		Long: `sluice-kube runs beside the plugin, without privileges and with the only token.
It publishes the plugin's offer to batch work as resources of the node.

Exit status: 0 success, 1 failure, 2 invalid command line.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			exit = exitFailure
		},
	}
	root.AddCommand(newRun(), newUninstall(), newVersion())
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errs)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	for line := range strings.SplitSeq("sluice-kube: "+err.Error(), "\n") {
		fmt.Fprintln(errs, render.Printable(line))
	}
	if exit == exitUsage {
		fmt.Fprintf(errs, "See '%s --help'.\n", command.CommandPath())
	}
	return exit
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of sluice-kube, the Go version and the platform it was built for.",
		Example: "  sluice-kube version",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "sluice-kube %s, %s, %s/%s\n", buildinfo.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
