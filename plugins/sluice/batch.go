package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/switching"
)

func newBatch() *cobra.Command {
	o := switching.Options{}
	words := []string{"on", "off", "auto"}
	c := &cobra.Command{
		Use:   "batch [on|off|auto]",
		Short: "Stop, allow or show batch work on this node",
		Long: `Override the configuration for batch work (class BE) on this node:

  off    limit batch work to its floor and refuse new batch pods;
         --evict also evicts the running ones
  on     let batch work run, even while a window of the configuration is open
  auto   remove the override
  (none) print the current state

The override is stored in the state folder and survives restarts. If no running
plugin applies it in time, off does what the failsafe does: services get the CPU
they request, and batch work its floor.

The override changes nothing while control.mode is preview, the default.

Exit status: 0 the override is fully in force, 1 it is not, or only in part.`,
		Example: `  sluice batch
  sluice batch off --for 2h
  sluice batch off --evict
  sluice batch auto -o json`,
		ValidArgs: words,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains(words, args[0]) {
				return fmt.Errorf("batch takes on, off, auto or no word, not %q", args)
			}
			if len(args) > 0 {
				o.Word = args[0]
			}
			if err := o.Check(); err != nil {
				return err
			}
			if c.Flags().Changed("for") && o.For == 0 {
				return errors.New("--for must be longer than nothing, as 2h")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&o.Config, "config", "c", "", "configuration `file` (default "+config.UsualFile+", if it exists)")
	f.StringVar(&o.StateDir, "state-dir", "", "`folder` that stores the override (default: the configuration's)")
	f.StringVar(&o.RuntimeDir, "runtime-dir", "", runtimeDirHelp)
	f.StringVar(&o.HostRoot, "host-root", "/", "`folder` that holds the host's /sys and /proc")
	f.BoolVar(&o.Evict, "evict", false, "with off: also evict the running batch pods")
	f.DurationVar(&o.For, "for", 0, "with on and off: end the override after this `duration`, e.g. 2h")
	f.DurationVar(&o.Wait, "wait", 5*time.Second, "wait at most this `duration` for the running plugin to apply it")
	socket := socketFlag(c)
	output := cli.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.Socket = *socket
		report, err := switching.Run(c.Context(), o)
		if err != nil {
			return err
		}
		if output.String() == "json" {
			err = terminal.JSON(c.OutOrStdout(), report)
		} else {
			err = render.Batch(c.OutOrStdout(), report)
		}
		return cmp.Or(err, o.Verdict(report))
	}
	return c
}
