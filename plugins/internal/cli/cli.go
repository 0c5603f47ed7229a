// Package cli is what the command lines of all programs have in common.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// These are the exit statuses of all programs; success is 0.
const (
	ExitFailure = 1
	ExitUsage   = 2
)

// ExitStatus is the exit status of a command that has already printed its error.
type ExitStatus int

func (e ExitStatus) Error() string { return "exit status " + strconv.Itoa(int(e)) }

// Streams are the standard streams of a program.
type Streams struct {
	In        io.Reader
	Out, Errs io.Writer
}

// Execute runs a command line and returns the exit status. An error before a command has started
// is a usage error.
func Execute(ctx context.Context, root *cobra.Command, args []string, streams Streams) int {
	began := false
	eachCommand(root, func(command *cobra.Command) {
		if run := command.RunE; run != nil {
			command.RunE = func(c *cobra.Command, args []string) error {
				began = true
				return run(c, args)
			}
		}
	})
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Errs)
	root.InitDefaultCompletionCmd(args...)
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() } // otherwise cobra prints its help for an unknown shell, and exits with 0
	}
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[ExitStatus](err); ok {
		return int(status)
	}
	for line := range strings.SplitSeq(root.DisplayName()+": "+err.Error(), "\n") {
		fmt.Fprintln(streams.Errs, terminal.Printable(line))
	}
	if began {
		return ExitFailure
	}
	fmt.Fprintf(streams.Errs, "See '%s --help'.\n", command.CommandPath())
	return ExitUsage
}

// eachCommand visits all commands below one.
func eachCommand(parent *cobra.Command, visit func(*cobra.Command)) {
	for _, command := range parent.Commands() {
		visit(command)
		eachCommand(command, visit)
	}
}

// FlagsAlone rejects arguments other than flags.
func FlagsAlone(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.Flags().Lookup("file") != nil:
		return fmt.Errorf("%s takes its file with -f: -f %s", c.Name(), args[0])
	}
	return fmt.Errorf("%s takes flags alone, not %q", c.Name(), args[0])
}
