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

// completionTime is how long a shell waits for the plugin's names of pods.
const completionTime = 500 * time.Millisecond

// completePods lists pods, and their containers where a pod is already named.
func completePods(socket, begun string) []string {
	ctx, stop := context.WithTimeout(context.Background(), completionTime)
	defer stop()
	s, err := statusapi.NewClient(socket).StatusIn(ctx)
	if err != nil {
		return nil
	}
	return status.Complete(s.Containers, begun)
}

// completeAll completes what the commands themselves don't: files and folders by
// the flags' names, words of a fixed set, and nothing where no file is meant.
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
			panic(err) // the flag is there, and was not completed yet
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
