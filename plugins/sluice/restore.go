package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/topology/sysfs"
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
exited. --stay keeps the command running when it is done, for a DaemonSet, whose
containers must not exit.`,
		Example: `  # what would be restored
  sluice restore --dry-run
  sluice restore --dry-run -o json | jq '.changes[].setting'

  systemctl stop sluice && sluice restore

  # in a pod, once the plugin's DaemonSet is being removed
  sluice restore --host-root /host --wait 5m`,
		Args: flagsAlone,
	}
	o := restoreOptions{}
	f := c.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+usualConfig+", if it exists)")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` of the plugin's lock (default: the configuration's)")
	f.StringVar(&o.runtimeDir, "runtime-dir", "", runtimeDirHelp)
	f.StringVar(&o.hostRoot, "host-root", "/", "`folder` that holds the host's /sys and /proc")
	f.BoolVar(&o.dry, "dry-run", false, "show what would be restored, and change nothing")
	f.DurationVar(&o.wait, "wait", 3*time.Second, "how long to wait for the plugin to exit")
	stay := f.Bool("stay", false, "when everything is restored, wait for a signal before exiting")
	output := outputFlag(c, "table", "json")
	c.MarkFlagsMutuallyExclusive("dry-run", "stay")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := o.run(ctx, c.OutOrStdout(), output.value == "json"); err != nil {
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
	at, err := bothFolders(o.stateDir, o.runtimeDir, o.config, o.hostRoot)
	if err != nil {
		return err
	}
	if !o.dry {
		unlock, err := lockWithin(ctx, at.state, o.wait)
		if err != nil {
			return err
		}
		defer unlock()
	}
	restored, err := restore(at, o.hostRoot, o.dry)
	if err != nil {
		err = fmt.Errorf("not all could be given back: %w; it stays on record: run it again", err)
	}
	report := restoredReport(restored, o.dry)
	if asJSON {
		return errors.Join(err, render.JSON(out, report))
	}
	return errors.Join(err, render.Restored(out, report, at.runtime, missing(at.runtime)))
}

func restore(at folders, hostRoot string, dry bool) (r agent.Restored, err error) {
	host := os.DirFS(hostRoot)
	plan := at.failsafePlan(agent.BootID(host))
	if !dry {
		if err := at.forgetFailsafe(); err != nil {
			return r, fmt.Errorf("the failsafe of the plugin that was stopped would undo what is given back: %w", err)
		}
	}
	book, bad := at.book(agent.BootID(host), dry)
	defer func() {
		if !dry {
			err = errors.Join(err, book.Close())
		}
		err = errors.Join(bad, err)
	}()
	machine, err := sysfs.Read(host)
	if err != nil {
		return r, fmt.Errorf("reading the machine below %s: %w", hostRoot, err)
	}
	all := agent.Host{Online: machine.Online, Cores: coresched.New()}
	if all.Affinities, err = irq.Open(hostRoot); err != nil {
		return r, err
	}
	if all.Watermarks, err = watermark.Open(hostRoot); err != nil {
		return r, err
	}
	driver, err := cgroupfs.Open(hostRoot)
	switch {
	case err == nil:
		defer driver.Close() //nolint:errcheck // nothing is left to lose
		all.Kernel = driver
	case !errors.Is(err, cgroupfs.ErrNoCgroups):
		return r, err
	}
	rdt, err := resctrl.Open(hostRoot)
	switch {
	case err == nil:
		defer rdt.Close() //nolint:errcheck // nothing is left to lose
		all.RDT = rdt
	case !errors.Is(err, resctrl.ErrNone):
		return r, err
	}
	var unknown error
	if all.Managers, unknown = peers.Managers(host); unknown != nil { // both may be there
		all.Managers = []peers.Neighbour{{Kind: peers.CPUManager}, {Kind: peers.MemoryManager}}
	}
	if all.Kernel != nil {
		reconcile.AfterFailsafe(driver, book, plan)
	}
	r, err = agent.Restore(&all, book, dry)
	return r, errors.Join(err, unknown)
}

// restoredReport is what was, or would be, given back, as data.
func restoredReport(r agent.Restored, dry bool) *status.Restored {
	report := &status.Restored{DryRun: dry, Changes: []status.Returned{}, IRQs: r.IRQs, LeftAlone: append([]string{}, r.Newer...)}
	for _, c := range r.Changes {
		from := "unknown"
		if c.From != nil {
			from = c.From.String()
		}
		report.Changes = append(report.Changes, status.Returned{Where: c.Object.Name, Setting: c.Knob.String(), From: from, To: c.To.String()})
	}
	return report
}
