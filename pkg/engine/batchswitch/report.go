package batchswitch

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Report says whether the switch is in force.
type Report struct {
	Switch  status.Switch    `json:"switch"` // as the state folder has it
	Loop    LoopAnswer       `json:"loop"`
	Batch   *status.Batch    `json:"batch,omitempty"`   // as the loop has it
	Floor   *failsafe.Report `json:"floor,omitempty"`   // what the failsafe's plan did in the loop's place
	Preview string           `json:"preview,omitempty"` // why the switch changes nothing on this node, and how to change that; absent if it does
	Lacks   []string         `json:"lacks,omitempty"`   // what isn't in force

	modes   map[string]control.Mode // modes of the loop's controllers, by their names
	evictBy control.EvictBy
	other   string // state folder of the running plugin if it is not the switch's; "" otherwise
	unread  string // why the running plugin can't read the switch
	stopped bool   // whether the fleet's switch is off
}

// LoopAnswer says whether the running loop follows the switch.
type LoopAnswer string

// These are the answers of a loop.
const (
	LoopFollows LoopAnswer = "follows" // it has read the switch as it is
	LoopOff     LoopAnswer = "off"     // the plugin answers and has no loop
	LoopStuck   LoopAnswer = "stuck"   // the plugin answers but its loop has not read the switch
	LoopSilent  LoopAnswer = "silent"  // no plugin answers
)

// StatusReader reads the status of the running plugin, as statusapi.Client does.
type StatusReader interface {
	StatusIn(ctx context.Context) (*status.Status, error)
}

// Check asks the plugin once, within the context, whether it follows the switch of a state folder.
func Check(ctx context.Context, plugin StatusReader, stateDir string, s Setting) *Report {
	r := &Report{Switch: s.Status(), Loop: LoopSilent}
	r.query(ctx, plugin, stateDir)
	return r
}

// Follow asks the plugin repeatedly, until its loop follows the switch of a state folder, until
// the plugin answers that it has no loop, or until the context ends.
func Follow(ctx context.Context, plugin StatusReader, stateDir string, s Setting) *Report {
	const pause = 50 * time.Millisecond
	r := &Report{Switch: s.Status(), Loop: LoopSilent}
	for {
		r.query(ctx, plugin, stateDir)
		if r.Loop == LoopFollows || r.Loop == LoopOff {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(pause):
		}
	}
}

// Status returns the switch in the form of the status.
func (s Setting) Status() status.Switch {
	return status.Switch{State: s.To, Evict: s.Evict, EndsAt: s.Until}
}

// query asks the plugin once. If no answer comes before the context ends, the previous answer stays.
func (r *Report) query(ctx context.Context, plugin StatusReader, stateDir string) {
	s, err := plugin.StatusIn(ctx)
	switch {
	case err == nil:
		r.note(s, stateDir)
	case ctx.Err() == nil:
		r.Loop = LoopSilent // a plugin that is restarting may come back
	}
}

// note enters what the plugin's status says about the loop.
func (r *Report) note(s *status.Status, stateDir string) {
	r.Loop = LoopOff
	l := s.Loop
	if l == nil {
		return
	}
	r.Loop, r.Batch, r.evictBy, r.other = LoopStuck, nil, l.Evictions.By, ""
	if !l.MeasuredAt.IsZero() {
		r.Batch = &l.Batch
	}
	r.modes = map[string]control.Mode{}
	for _, c := range l.Controllers {
		r.modes[c.Name] = c.Mode
	}
	if l.StateDir != "" && filepath.Clean(l.StateDir) != filepath.Clean(stateDir) {
		r.other = l.StateDir
	}
	const staleAfter = 5 // intervals
	r.Preview = r.previews(s)
	alive := !l.MeasuredAt.IsZero() && s.Time.Sub(l.MeasuredAt) <= max(staleAfter*l.Interval, time.Second)
	has := &l.Batch.Switch
	r.unread = has.Problem
	fleet := l.Batch.FleetSwitch
	r.stopped = fleet != nil && fleet.State == control.SwitchOff && (fleet.EndsAt.IsZero() || s.Time.Before(fleet.EndsAt))
	if alive && has.State == r.Switch.State && has.Evict == r.Switch.Evict && has.EndsAt.Equal(r.Switch.EndsAt) {
		r.Loop = LoopFollows
	}
}

// previews returns why the plugin decides what the switch says and carries out none of it, and
// how to change that; "" if it carries out some of it.
func (r *Report) previews(s *status.Status) string {
	switch {
	case s.Mode == status.ModePreview && s.Why != "":
		return s.Why
	case s.Mode == status.ModePreview:
		return "mode is preview; set mode and control.mode to on in sluice.yaml"
	case !slices.Contains([]control.Mode{r.modes["windows"], r.modes["batch"], r.modes["pools"]}, control.On):
		return "control.mode is " + string(s.Loop.Mode) + "; set it to on in sluice.yaml"
	}
	return ""
}

// LeavesFloor reports whether nobody but the caller can squeeze batch work to its floor: a
// running loop does it by itself, and a loop in preview must not have it done.
func (r *Report) LeavesFloor() bool {
	switch r.Loop {
	case LoopSilent:
		return true
	case LoopStuck:
		return r.other == "" && (r.modes["batch"] == control.On || r.modes["pools"] == control.On)
	}
	return false
}

// Judge fills Lacks with what the switch demands and is not in force. switched says that the
// switch was set just now.
func (r *Report) Judge(switched bool) {
	lack := func(text string) { r.Lacks = append(r.Lacks, text) }
	if r.Loop == LoopStuck && r.unread != "" {
		lack("the plugin can't read the switch: " + r.unread)
	}
	if r.other != "" {
		lack("the running plugin's state folder is " + r.other + ": name it with --state-dir")
	}
	if switched && r.stopped && r.Switch.State == control.SwitchOn {
		lack("the fleet's switch is off, which counts before on: the ConfigMap sluice-switch ends it for the fleet")
	}
	off := switched && r.Switch.State == control.SwitchOff
	switch {
	case r.Loop == LoopFollows && off && r.Preview != "":
		lack("batch work keeps its CPUs, new batch pods still start, and no pod is evicted: the loop only previews")
	case r.Loop == LoopFollows && off:
		r.judgeOff()
	case r.Loop == LoopFollows:
	case r.Floor == nil && r.Loop == LoopSilent && !switched:
		lack("what is in force isn't known")
	case r.Floor == nil && r.Loop == LoopSilent && r.Preview != "":
		lack("batch work stays as it is: " + r.Preview)
	case r.Floor == nil:
		lack("batch work stays as it is until a loop takes the switch over")
	case r.Floor.Problem != "":
		lack("not all of the floor could be set: " + r.Floor.Problem)
	case r.Floor.Changes == 0:
		lack("the failsafe has no plan for this boot, as no loop has bounded batch work: nothing was changed")
	}
	if r.Loop != LoopFollows && off && r.Switch.Evict {
		lack("nothing was evicted: that needs the loop")
	}
}

// judgeOff adds what is still missing although the loop follows the switch.
func (r *Report) judgeOff() {
	lack := func(text string) { r.Lacks = append(r.Lacks, text) }
	if mode := r.modes["windows"]; mode != control.On {
		what := "new batch work still starts"
		if r.Switch.Evict {
			what += ", and nobody is evicted"
		}
		lack(what + ": control.mode is " + string(mode))
	}
	squeezes := "batch"
	if r.Batch.Mechanism == status.ByPools {
		squeezes = "pools"
	}
	switch mode := r.modes[squeezes]; {
	case mode != control.On:
		lack("batch work keeps its CPUs: control." + squeezes + ".mode is " + string(mode))
	case r.Batch.Mechanism == status.ByPools && r.Batch.Unlimited:
		lack("batch work keeps its CPUs: they are too few to divide between pools; pools.mode overlap bounds it")
	}
	if mode := r.modes["eviction"]; r.Switch.Evict && (mode != control.On || r.evictBy == control.EvictReport) {
		lack("evictions are reported and not carried out: control.eviction.mode is " + string(mode) + ", by " + string(r.evictBy))
	}
}
