// Command sluice is an NRI plugin that places containers on CPUs and NUMA nodes, and the
// command line that reports what it does and would do.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/runtime/nri"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// These are the exit statuses; success is 0.
const (
	exitFailure = cli.ExitFailure
	exitUsage   = cli.ExitUsage
	exitChanges = 3 // of config diff: the file would change something
)

func main() {
	os.Exit(execute(arguments(os.Args[1:], nri.PreInstalled()), os.Stdin, os.Stdout, os.Stderr))
}

// arguments returns the arguments of the command line. A runtime that launches the plugin
// itself passes none, which means run.
func arguments(args []string, preInstalled bool) []string {
	if len(args) == 0 && preInstalled {
		return []string{"run"}
	}
	return args
}

// execute runs a command line and returns the exit status.
func execute(args []string, in io.Reader, out, errs io.Writer) int {
	return cli.Execute(context.Background(), newRoot(), args, cli.Streams{In: in, Out: out, Errs: errs})
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Place containers on CPUs and NUMA nodes",
		Long: `Sluice is an NRI plugin for containerd and CRI-O that places containers on CPUs
and NUMA nodes: latency-sensitive pods get CPUs of their own, batch pods share
the rest. 'sluice run' is the plugin; the other commands show and check what it
does.

Exit status: 0 success, 1 failure, 2 invalid command line.`,
	}
	root.AddCommand(newRun(), newStatus(), newTop(), newExplain(), newPlan(), newConvert(), newMigrate(), newTopology(), newCheck(), newConfig(), newDoctor(), newLogCommand(), newBatch(), newFailsafe(), newRestore(), newSim(), newRecord(), newReplay(), newGrade(), newMan(), cli.NewVersion("sluice"))
	completeAll(root)
	return root
}
