// Package switching implements 'sluice batch': it sets the batch switch and waits until a
// running plugin has applied it. If no plugin runs, it does what the failsafe does.
package switching

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// Options say where the switch is, and what to do with it.
type Options struct {
	Config, StateDir, RuntimeDir string // "" for the usual file, and its folders
	HostRoot                     string // folder with the host's /sys and /proc
	Socket                       string // status socket of the running plugin
	Word                         string // on, off or auto; "" only reports what is in force
	Evict                        bool   // with off: evict the running batch pods
	For                          time.Duration
	Wait                         time.Duration // limit of the wait for the running plugin
}

// Check returns an error for options that contradict each other.
func (o *Options) Check() error {
	switch {
	case o.Evict && o.Word != "off":
		return errors.New("--evict goes with off alone")
	case o.For != 0 && o.Word != "on" && o.Word != "off":
		return errors.New("--for goes with on or off")
	case o.For < 0:
		return errors.New("--for must be longer than nothing, as 2h")
	}
	return nil
}

// Run sets the switch, unless Word is "", and reports what is in force.
func Run(ctx context.Context, o Options) (*batchswitch.Report, error) {
	at, preview, err := o.folders()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(o.Wait, time.Millisecond))
	defer cancel()
	plugin := statusapi.NewClient(o.Socket)
	if o.Word == "" {
		setting, err := batchswitch.Read(at.State)
		if err != nil {
			return nil, fmt.Errorf("the switch in %s can't be read: %w", at.State, err)
		}
		report := batchswitch.Check(ctx, plugin, at.State, setting)
		report.Judge(false)
		return report, nil
	}
	setting := batchswitch.Setting{Evict: o.Evict}
	if err := setting.To.UnmarshalText([]byte(o.Word)); err != nil {
		return nil, err
	}
	if o.For > 0 {
		setting.Until = time.Now().Add(o.For).Round(0)
	}
	if err := within(max(o.Wait, time.Second), func() error { return batchswitch.Write(at.State, setting) }); err != nil {
		return nil, notWritten(at.State, err)
	}
	report := batchswitch.Follow(ctx, plugin, at.State, setting)
	report.Preview = cmp.Or(report.Preview, preview)
	if setting.To == control.SwitchOff && preview == "" && report.LeavesFloor() {
		acted, err := failsafe.Act(at.Runtime, o.HostRoot, "batch was switched off by the command line, and no loop took it over")
		if err != nil {
			acted.Problem = err.Error()
		}
		report.Floor = &acted
	}
	report.Judge(true)
	return report, nil
}

// Verdict returns an error if the switch is not, or only partly, in force.
func (o *Options) Verdict(report *batchswitch.Report) error {
	switch {
	case len(report.Lacks) == 0:
		return nil
	case o.Word == "":
		return errors.New("no loop follows the switch")
	}
	return fmt.Errorf("batch %s is not in force as a whole", o.Word)
}

// folders returns the folders that the options name, otherwise the configuration's. preview
// says why nothing may be written by this configuration, and how to change that; "" if it may.
func (o *Options) folders() (at statedir.Dirs, preview string, err error) {
	file := config.FileOr(o.Config, o.HostRoot)
	if file == "" {
		return statedir.Of(config.Default(), o.StateDir, o.RuntimeDir), "", nil
	}
	cfg, _, err := config.Load(file)
	if err != nil {
		at, err = statedir.Named(o.StateDir, o.RuntimeDir, o.Config, o.HostRoot)
		return at, "", err
	}
	l := &cfg.Control
	on := slices.ContainsFunc([]control.Mode{l.Pools.Mode, l.Batch.Mode, l.Demotion.Mode}, func(own control.Mode) bool {
		return cmp.Or(own, l.Mode) == control.On
	})
	switch {
	case cfg.Mode != config.On:
		preview = "mode is " + string(cfg.Mode) + "; set mode and control.mode to on in " + file
	case !on:
		preview = "control.mode is " + string(l.Mode) + "; set it to on in " + file
	}
	return statedir.Of(cfg, o.StateDir, o.RuntimeDir), preview, nil
}

// errHangs is the error for a disk that does not answer.
var errHangs = errors.New("the disk does not answer")

// within waits for a write up to the given time. The kernel lets the process end only when the
// write has ended, but the person is told why.
func within(wait time.Duration, write func() error) error {
	done := make(chan error, 1)
	go func() { done <- write() }()
	select {
	case err := <-done:
		return err
	case <-time.After(wait):
		return errHangs
	}
}

func notWritten(dir string, err error) error {
	next := "nothing is switched"
	switch {
	case errors.Is(err, errHangs):
		next += "; thaw or repair the disk (fsfreeze -u), until when this command can't end, or configure a window under control.windows"
	case errors.Is(err, fs.ErrPermission):
		next += "; are you root?"
	case errors.Is(err, fs.ErrNotExist):
		next += "; sluice has not run with this state folder: name its own with --state-dir"
	}
	return fmt.Errorf("the switch can't be written to %s: %w: %s", dir, err, next)
}
