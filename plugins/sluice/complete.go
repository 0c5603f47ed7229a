package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// completionTime limits how long a shell's completion waits for the plugin to list pods.
const completionTime = 500 * time.Millisecond

// completePods lists pods, or the containers of a pod once its name is complete.
func completePods(socket, begun string) []string {
	ctx, stop := context.WithTimeout(context.Background(), completionTime)
	defer stop()
	s, err := statusapi.NewClient(socket).StatusIn(ctx)
	if err != nil {
		return nil
	}
	return status.Complete(s.Containers, begun)
}

// completeAll sets the completion of all flags that have none: files and folders by the names
// of the flags, the words of a fixed set, and nothing for other flags.
func completeAll(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeAll(sub)
	}
	if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 && c.Args != nil && c.Args(c, []string{"x"}) != nil {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, done := c.GetFlagCompletionFunc(f.Name); done || f.Value.Type() == "bool" {
			return
		}
		if err := completeFlag(c, f.Name); err != nil {
			panic(err) // fails only for an unknown flag or a second registration
		}
	})
}

func completeFlag(c *cobra.Command, name string) error {
	switch name {
	case "config":
		return c.MarkFlagFilename(name, "yaml", "yml")
	case "file", "svg", "socket", "status-socket":
		return c.MarkFlagFilename(name)
	case "host-root", "state-dir", "runtime-dir":
		return c.MarkFlagDirname(name)
	case "log-level":
		return c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	case "policy":
		return c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(sim.PolicyNames(), cobra.ShellCompDirectiveNoFileComp))
	}
	return c.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
}
