package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// batchOptions are the flags of `sluice batch`.
type batchOptions struct {
	config, stateDir, hostRoot string
	runtimeDir                 string
	socket                     *string
	evict                      bool
	duration, wait             time.Duration
	output                     *choice
}

func newBatch() *cobra.Command {
	o := batchOptions{}
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
			return o.check(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := c.Flags()
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+config.UsualFile+", if it exists)")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` that stores the override (default: the configuration's)")
	f.StringVar(&o.runtimeDir, "runtime-dir", "", runtimeDirHelp)
	f.StringVar(&o.hostRoot, "host-root", "/", "`folder` that holds the host's /sys and /proc")
	f.BoolVar(&o.evict, "evict", false, "with off: also evict the running batch pods")
	f.DurationVar(&o.duration, "for", 0, "with on and off: end the override after this `duration`, e.g. 2h")
	f.DurationVar(&o.wait, "wait", 5*time.Second, "wait at most this `duration` for the running plugin to apply it")
	o.socket = socketFlag(c)
	o.output = outputFlag(c, "text", "json")
	return c
}

func (o *batchOptions) check(c *cobra.Command, args []string) error {
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	switch {
	case o.evict && word != "off":
		return errors.New("--evict goes with off alone")
	case c.Flags().Changed("for") && word != "on" && word != "off":
		return errors.New("--for goes with on or off")
	case c.Flags().Changed("for") && o.duration <= 0:
		return errors.New("--for must be longer than nothing, as 2h")
	}
	return nil
}

func (o *batchOptions) run(c *cobra.Command, args []string) error {
	at, writes, err := o.folders()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), max(o.wait, time.Millisecond))
	defer cancel()
	plugin := statusapi.NewClient(*o.socket)
	var report *batchswitch.Report
	if len(args) == 0 {
		setting, err := batchswitch.Read(at.State)
		if err != nil {
			return fmt.Errorf("the switch in %s can't be read: %w", at.State, err)
		}
		report = batchswitch.Check(ctx, plugin, at.State, setting)
	} else {
		setting := batchswitch.Setting{Evict: o.evict}
		if err := setting.To.UnmarshalText([]byte(args[0])); err != nil {
			return err
		}
		if o.duration > 0 {
			setting.Until = time.Now().Add(o.duration).Round(0)
		}
		if err := batchswitch.Write(at.State, setting); err != nil {
			return notWritten(at.State, err)
		}
		report = batchswitch.Follow(ctx, plugin, at.State, setting)
		if setting.To == control.SwitchOff && writes && report.LeavesFloor() {
			acted, err := failsafe.Act(at.Runtime, o.hostRoot, "batch was switched off by the command line, and no loop took it over")
			if err != nil {
				acted.Problem = err.Error()
			}
			report.Floor = &acted
		}
	}
	report.Judge(len(args) > 0)
	if o.output.value == "json" {
		err = render.JSON(c.OutOrStdout(), report)
	} else {
		err = render.Batch(c.OutOrStdout(), report)
	}
	switch {
	case err != nil:
		return err
	case len(report.Lacks) == 0:
		return nil
	case len(args) == 0:
		return errors.New("no loop follows the switch")
	}
	return fmt.Errorf("batch %s is not in force as a whole", args[0])
}

// folders are those that the flags name, else the configuration's. By a configuration that
// only previews, nothing is to be written.
func (o *batchOptions) folders() (at statedir.Dirs, writes bool, err error) {
	file := config.FileOr(o.config, o.hostRoot)
	if file == "" {
		return statedir.Of(config.Default(), o.stateDir, o.runtimeDir), true, nil
	}
	cfg, _, err := config.Load(file)
	if err != nil {
		at, err = statedir.Named(o.stateDir, o.runtimeDir, o.config, o.hostRoot)
		return at, err == nil, err
	}
	l := &cfg.Control
	on := slices.ContainsFunc([]control.Mode{l.Pools.Mode, l.Batch.Mode, l.Demotion.Mode}, func(own control.Mode) bool {
		return cmp.Or(own, l.Mode) == control.On
	})
	return statedir.Of(cfg, o.stateDir, o.runtimeDir), on && cfg.Mode == config.On, nil
}

func notWritten(dir string, err error) error {
	next := "nothing is switched"
	switch {
	case errors.Is(err, fs.ErrPermission):
		next += "; are you root?"
	case errors.Is(err, fs.ErrNotExist):
		next += "; sluice has not run with this state folder: name its own with --state-dir"
	}
	return fmt.Errorf("the switch can't be written to %s: %w: %s", dir, err, next)
}
