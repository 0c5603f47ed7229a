package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/daemon"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

func newRestore() *cobra.Command {
	c := &cobra.Command{
		Use:   "restore",
		Short: "Restore every kernel setting that Sluice has changed",
		Long: `Restore every kernel setting that Sluice has changed: containers may use all
CPUs and memory nodes again, and quotas, weights, bursts and all other settings
get their original values. A value that another program has written since is
left alone, and so are CPU and memory node sets that the kubelet's static
managers write now.

Stopping the plugin restores nothing, so that a restart moves no container. Use
restore to remove Sluice: stop the plugin first, or let --wait wait until it has
exited. If the plugin was killed while the runtime was updating a container for
it, restore first waits up to 10 seconds for that. --stay keeps the command
running when it is done, for a DaemonSet, whose containers must not exit.`,
		Example: `  # what would be restored
  sluice restore --dry-run
  sluice restore --dry-run -o json | jq '.changes[].setting'

  systemctl stop sluice && sluice restore

  # in a pod, once the plugin's DaemonSet is being removed
  sluice restore --host-root /host --wait 5m`,
		Args: cli.FlagsAlone,
	}
	o := restoreOptions{}
	f := c.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+config.UsualFile+", if it exists)")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` of the plugin's lock (default: the configuration's)")
	f.StringVar(&o.runtimeDir, "runtime-dir", "", runtimeDirHelp)
	f.StringVar(&o.hostRoot, "host-root", "/", "`folder` that holds the host's /sys and /proc")
	f.BoolVar(&o.dry, "dry-run", false, "show what would be restored, and change nothing")
	f.DurationVar(&o.wait, "wait", 3*time.Second, "how long to wait for the plugin to exit")
	stay := f.Bool("stay", false, "when everything is restored, wait for a signal before exiting")
	output := cli.OutputFlag(c, "table", "json")
	c.MarkFlagsMutuallyExclusive("dry-run", "stay")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := o.run(ctx, c.OutOrStdout(), output.String() == "json"); err != nil {
			return err
		}
		if *stay {
			<-ctx.Done()
		}
		return nil
	}
	return c
}

// restoreOptions are the flags of `sluice restore`.
type restoreOptions struct {
	config, stateDir, runtimeDir, hostRoot string
	dry                                    bool
	wait                                   time.Duration
}

func (o *restoreOptions) run(ctx context.Context, out io.Writer, asJSON bool) error {
	at, err := statedir.Named(o.stateDir, o.runtimeDir, o.config, o.hostRoot)
	if err != nil {
		return err
	}
	report, err := daemon.Restore(ctx, at, o.hostRoot, o.dry, o.wait)
	if report == nil {
		return err
	}
	if asJSON {
		return errors.Join(err, terminal.JSON(out, report))
	}
	return errors.Join(err, render.Restored(out, report, at.Runtime, statedir.Missing(at.Runtime)))
}
