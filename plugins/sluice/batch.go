package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
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
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` (default "+usualConfig+", if it exists)")
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

// batchReport is what the command did and found.
type batchReport struct {
	Switch status.Switch   `json:"switch"` // as the state folder has it
	Loop   loopAnswer      `json:"loop"`
	Batch  *status.Batch   `json:"batch,omitempty"` // as the loop has it
	Floor  *failsafe.Acted `json:"floor,omitempty"` // what was done in the loop's place
	Lacks  []string        `json:"lacks,omitempty"` // what isn't in force

	modes   map[string]control.Mode // of the loop's controllers, where it tells them
	evictBy control.EvictBy
	other   string // the running plugin's state folder, where it is another
}

// loopAnswer is what the running loop makes of the switch.
type loopAnswer string

const (
	loopFollows loopAnswer = "follows" // it has read the switch as it is
	loopOff     loopAnswer = "off"     // the plugin answers, and has no loop
	loopStuck   loopAnswer = "stuck"   // the plugin answers, its loop has not read it
	loopSilent  loopAnswer = "silent"  // no plugin answers
)

func (o *batchOptions) run(c *cobra.Command, args []string) error {
	at, writes, err := o.folders()
	if err != nil {
		return err
	}
	var report batchReport
	if len(args) == 0 {
		said, err := agent.ReadSwitch(at.state)
		if err != nil {
			return fmt.Errorf("the switch in %s can't be read: %w", at.state, err)
		}
		report = o.follow(c.Context(), at.state, said, time.Time{})
	} else {
		now := time.Now()
		said := agent.Switched{Evict: o.evict}
		if err := said.To.UnmarshalText([]byte(args[0])); err != nil {
			return err
		}
		if o.duration > 0 {
			said.Until = now.Add(o.duration).Round(0)
		}
		if err := agent.WriteSwitch(at.state, said); err != nil {
			return notWritten(at.state, err)
		}
		report = o.follow(c.Context(), at.state, said, now)
		if said.To == control.SwitchOff && writes && report.mayAct() {
			o.floor(at, &report)
		}
	}
	report.judge(len(args) > 0)
	if o.output.value == "json" {
		err = writeJSON(c.OutOrStdout(), report)
	} else {
		_, err = io.WriteString(c.OutOrStdout(), batchText(&report))
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

// folders are Sluice's: as the flags, else the configuration says. By a configuration
// that only previews, nothing is written.
func (o *batchOptions) folders() (at folders, writes bool, err error) {
	file := configFile(o.config, o.hostRoot)
	usual := config.Default()
	if file == "" {
		return folders{cmp.Or(o.stateDir, usual.StateDir), cmp.Or(o.runtimeDir, o.stateDir, usual.RuntimeDir)}, true, nil
	}
	cfg, err := loadConfig(file)
	if err != nil {
		if o.stateDir != "" && o.config == "" {
			return folders{o.stateDir, cmp.Or(o.runtimeDir, o.stateDir)}, true, nil
		}
		return folders{}, false, fmt.Errorf("%w; --state-dir without --config works as well", err)
	}
	l := &cfg.Control
	on := slices.ContainsFunc([]control.Mode{l.Pools.Mode, l.Batch.Mode, l.Demotion.Mode}, func(own control.Mode) bool {
		return cmp.Or(own, l.Mode) == control.On
	})
	at = folders{cmp.Or(o.stateDir, cfg.StateDir), cmp.Or(o.runtimeDir, o.stateDir, cfg.RuntimeDir)}
	return at, on && cfg.Mode == config.On, nil
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

// follow asks the plugin until its loop applies the override, for as long as one is to
// wait for it; with no time of saying, once.
func (o *batchOptions) follow(ctx context.Context, dir string, said agent.Switched, at time.Time) batchReport {
	report := batchReport{Switch: switchStatus(said), Loop: loopSilent}
	ctx, cancel := context.WithTimeout(ctx, max(o.wait, time.Millisecond))
	defer cancel()
	const pause = 50 * time.Millisecond
	client := statusapi.NewClient(*o.socket)
	for {
		s, err := client.StatusIn(ctx)
		if err == nil {
			report.take(s, dir)
		} else if ctx.Err() == nil {
			report.Loop = loopSilent // a plugin that goes, comes back perhaps
		}
		if at.IsZero() || report.Loop == loopFollows || report.Loop == loopOff {
			return report
		}
		select {
		case <-ctx.Done():
			return report
		case <-time.After(pause):
		}
	}
}

func switchStatus(s agent.Switched) status.Switch {
	return status.Switch{To: string(cmp.Or(s.To, "auto")), Evict: s.Evict, Until: s.Until}
}

// take notes what the plugin tells.
func (r *batchReport) take(s *status.Status, dir string) {
	r.Loop = loopOff
	l := s.Loop
	if l == nil {
		return
	}
	r.Loop, r.Batch, r.evictBy, r.other = loopStuck, nil, l.Evictions.By, ""
	if !l.Time.IsZero() {
		r.Batch = &l.Batch
	}
	r.modes = map[string]control.Mode{}
	for _, c := range l.Controllers {
		r.modes[c.Name] = c.Mode
	}
	if l.StateDir != "" && filepath.Clean(l.StateDir) != filepath.Clean(dir) {
		r.other = l.StateDir
	}
	const staleAfter = 5 // intervals
	lively := !l.Time.IsZero() && s.Time.Sub(l.Time) <= max(staleAfter*l.Interval, time.Second)
	has := &l.Batch.Switch
	if lively && has.To == r.Switch.To && has.Evict == r.Switch.Evict && has.Until.Equal(r.Switch.Until) {
		r.Loop = loopFollows
	}
}

// mayAct reports whether it is left to this command to squeeze batch work: a loop that
// is there follows by itself, and in preview nothing is written.
func (r *batchReport) mayAct() bool {
	switch r.Loop {
	case loopSilent:
		return true
	case loopStuck:
		return r.other == "" && (r.modes["batch"] == control.On || r.modes["pools"] == control.On)
	}
	return false
}

// floor does in the loop's place what can be done without it.
func (o *batchOptions) floor(at folders, r *batchReport) {
	l := failsafeOptions{folders: at, hostRoot: o.hostRoot}
	acted, err := l.carryOut("batch was switched off by the command line, and no loop took it over")
	if err != nil {
		acted.Error = err.Error()
	}
	r.Floor = &acted
}

// judge lists what isn't in force of what the switch says; said: just now.
func (r *batchReport) judge(said bool) {
	lack := func(text string) { r.Lacks = append(r.Lacks, text) }
	if r.other != "" {
		lack("the running plugin's state folder is " + r.other + ": name it with --state-dir")
	}
	off := said && r.Switch.To == string(control.SwitchOff)
	switch {
	case r.Loop == loopFollows && off:
		r.judgeOff()
	case r.Loop == loopFollows:
	case r.Floor == nil && r.Loop == loopSilent && !said:
		lack("what is in force isn't known")
	case r.Floor == nil:
		lack("batch work stays as it is until a loop takes the switch over")
	case r.Floor.Error != "":
		lack("not all of the floor could be set: " + r.Floor.Error)
	case r.Floor.Changes == 0:
		lack("the failsafe has no plan for this boot, as no loop has bounded batch work: nothing was changed")
	}
	if r.Loop != loopFollows && off && r.Switch.Evict {
		lack("nothing was evicted: that needs the loop")
	}
}

// judgeOff lists what a loop leaves undone that follows.
func (r *batchReport) judgeOff() {
	lack := func(text string) { r.Lacks = append(r.Lacks, text) }
	if mode := r.modes["windows"]; mode != control.On {
		what := "new batch work still starts"
		if r.Switch.Evict {
			what += ", and nobody is evicted"
		}
		lack(what + ": control.mode is " + string(mode))
	}
	squeezes := "batch"
	if r.Batch.Mechanism == byPools {
		squeezes = "pools"
	}
	switch mode := r.modes[squeezes]; {
	case mode != control.On:
		lack("batch work keeps its CPUs: control." + squeezes + ".mode is " + string(mode))
	case r.Batch.Mechanism == byPools && r.Batch.Unlimited:
		lack("batch work keeps its CPUs: they are too few to divide between pools; pools.mode overlap bounds it")
	}
	if mode := r.modes["eviction"]; r.Switch.Evict && (mode != control.On || r.evictBy != control.EvictCRI) {
		lack("evictions are told and not carried out: control.eviction.mode is " + string(mode) + ", by " + string(r.evictBy))
	}
}

// byPools is the mechanism where batch work has a pool apart.
const byPools = "pools"
