// Command sluice is an NRI plugin that places containers on CPUs and NUMA nodes, and the
// command line that reports what it does and would do.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/runtime/nri"
	"github.com/sluice-dev/sluice/pkg/view/render"
)

// These are the exit statuses; success is 0.
const (
	exitFailure = 1
	exitUsage   = 2
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

// execute runs a command line and returns the exit status. An error before a command has
// started is a usage error.
func execute(args []string, in io.Reader, out, errs io.Writer) int {
	began := false
	root := newRoot()
	eachCommand(root, func(command *cobra.Command) {
		if run := command.RunE; run != nil {
			command.RunE = func(c *cobra.Command, args []string) error {
				began = true
				return run(c, args)
			}
		}
	})
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	root.InitDefaultCompletionCmd(args...)
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() } // otherwise cobra prints its help for an unknown shell, and exits with 0
	}
	command, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	for line := range strings.SplitSeq("sluice: "+err.Error(), "\n") {
		fmt.Fprintln(errs, render.Printable(line))
	}
	if began {
		return exitFailure
	}
	fmt.Fprintf(errs, "See '%s --help'.\n", command.CommandPath())
	return exitUsage
}

// exitStatus is the exit status of a command that has already printed its error.
type exitStatus int

func (e exitStatus) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// eachCommand visits all commands below one.
func eachCommand(parent *cobra.Command, visit func(*cobra.Command)) {
	for _, command := range parent.Commands() {
		visit(command)
		eachCommand(command, visit)
	}
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
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(newRun(), newStatus(), newTop(), newExplain(), newPlan(), newConvert(), newTopology(), newCheck(), newConfig(), newDoctor(), newLogCommand(), newBatch(), newFailsafe(), newRestore(), newSim(), newRecord(), newReplay(), newMan(), newVersion())
	completeAll(root)
	return root
}
