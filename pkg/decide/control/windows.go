package control

import (
	"cmp"
	"fmt"
	"path"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Windows decides from the time of day, and from the switch, whether the node does
// batch work. It is stepped before the other controllers, which find its answer in
// View.Batch.
type Windows struct {
	windows   []dayWindow
	zone      *time.Location
	pace      pace
	steady    int // steps in a row
	begun     bool
	state     BatchState
	next      time.Time
	decisions []Decision
}

// Switch is what somebody has said by the command line. It goes before all windows.
type Switch struct {
	To    SwitchState
	Evict bool      // with off: running BE goes at once
	Until time.Time // the switch counts for nothing then; zero: until it is switched again
}

// SwitchState is where the switch is.
type SwitchState string

// The switch's states.
const (
	SwitchAuto SwitchState = ""    // as the windows say
	SwitchOn   SwitchState = "on"  // batch, whatever the windows say
	SwitchOff  SwitchState = "off" // none
)

// MarshalText writes "auto", "on" or "off".
func (s SwitchState) MarshalText() ([]byte, error) {
	if s == SwitchAuto {
		return []byte("auto"), nil
	}
	return []byte(s), nil
}

// UnmarshalText reads "auto", "on" or "off".
func (s *SwitchState) UnmarshalText(text []byte) error {
	if err := choose(s, text, "auto", SwitchOn, SwitchOff); err != nil {
		return err
	}
	if *s == "auto" {
		*s = SwitchAuto
	}
	return nil
}

// dayWindow is a window with its occurrence around now.
type dayWindow struct {
	Window
	soon, open string // why, before it and in it
	from, to   minute
	days       [7]bool // by time.Weekday, on which it begins

	span  occurrence // that is now, or the next
	valid time.Time  // span is right from then
	until time.Time  // to then
}

// steadyForEviction is how many steps time has to go on evenly before a window evicts:
// a clock that was wrong at boot, or jumps, is no reason to end work.
const steadyForEviction = 3

// NewWindows returns the controller, for times of that zone.
func NewWindows(windows []Window, zone *time.Location, interval time.Duration) (*Windows, error) {
	w := &Windows{zone: zone, pace: pace{interval: interval}}
	for i := range windows {
		c := dayWindow{Window: windows[i]}
		name := "window " + c.From + "-" + c.To
		c.soon, c.open = name+" begins soon: no new BE, what runs may finish", name+" closes batch"
		if c.Percent > 0 {
			c.open = fmt.Sprintf("%s leaves batch %d%% of its CPUs", name, c.Percent)
		}
		var err error
		if c.from, err = parseMinute(c.From); err == nil {
			c.to, err = parseMinute(c.To)
		}
		if err == nil {
			c.days, err = parseDays(c.Days)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		w.windows = append(w.windows, c)
	}
	return w, nil
}

// Step decides what batch work may do now.
func (w *Windows) Step(v *View, s Switch) (BatchState, []Decision) {
	if _, steady := w.pace.next(v.Now); steady {
		w.steady = min(w.steady+1, steadyForEviction)
	} else {
		w.steady = 0
	}
	now := v.Now.In(w.zone)
	state := w.decide(v, now, s)
	if state.Evict && w.steady < steadyForEviction && s.inForce(now) != SwitchOff {
		state.Evict = false
	}
	before := w.state
	w.state = state
	if !w.begun {
		w.begun = true
		before = BatchState{}
	}
	if state == before {
		return state, nil
	}
	to, why := state.text(), state.Why
	if why == "" {
		why = "no window and no switch holds any more: " + before.Why
	}
	w.decisions = append(w.decisions[:0], Decision{Controller: "windows", Object: "node", Action: to, From: before.text(), To: to, Why: why})
	return state, w.decisions
}

// Next is when the state changes by the time alone, as of the last step; zero: not
// within a week.
func (w *Windows) Next() time.Time { return w.next }

// inForce is the switch as it counts now.
func (s *Switch) inForce(now time.Time) SwitchState {
	if !s.Until.IsZero() && !now.Before(s.Until) {
		return SwitchAuto
	}
	return s.To
}

func (w *Windows) decide(v *View, now time.Time, s Switch) BatchState {
	state := w.byTime(v, now)
	switch s.inForce(now) {
	case SwitchOn:
		state = BatchState{}
		w.next = s.Until
	case SwitchOff:
		w.next = s.Until
		if s.Evict {
			return BatchState{Closed: true, Squeeze: true, Evict: true, Why: "batch is switched off, with eviction"}
		}
		return BatchState{Closed: true, Squeeze: true, Why: "batch is switched off"}
	}
	return state
}

// byTime joins the windows that are open now: the strictest of each.
func (w *Windows) byTime(v *View, now time.Time) BatchState {
	var state BatchState
	w.next = time.Time{}
	for i := range w.windows {
		c := &w.windows[i]
		c.place(now, w.zone)
		begin := c.span.from.Add(-c.Grace)
		for _, change := range [...]time.Time{begin, c.span.from, c.span.to} {
			if change.After(now) && (w.next.IsZero() || change.Before(w.next)) {
				w.next = change
			}
		}
		if c.span.to.IsZero() || now.Before(begin) || !c.concerns(v) {
			continue
		}
		if now.Before(c.span.from) {
			if !state.Closed {
				state.Closed = true
				state.Why = cmp.Or(state.Why, c.soon)
			}
			continue
		}
		state.join(c)
	}
	return state
}

// join takes the window's terms where they are stricter.
func (s *BatchState) join(c *dayWindow) {
	if c.Percent == 0 {
		if !s.Closed || !s.Squeeze || s.Percent > 0 || c.Evict && !s.Evict {
			s.Why = c.open
		}
		s.Closed, s.Squeeze, s.Percent, s.Evict = true, true, 0, s.Evict || c.Evict
		return
	}
	if !s.Squeeze || s.Percent > c.Percent {
		s.Squeeze, s.Percent = true, c.Percent
		s.Why = cmp.Or(s.Why, c.open)
	}
}

// concerns reports whether the window is for the node as it is: always, or while an LS
// pod runs whose labels match all of the window's.
func (c *dayWindow) concerns(v *View) bool {
	if len(c.Labels) == 0 {
		return true
	}
	for i := range v.Pods {
		p := &v.Pods[i]
		if p.Class != workload.BE && p.Class != workload.System && p.Class != workload.Unclassified && labelsMatch(c.Labels, p.Labels) {
			return true
		}
	}
	return false
}

func labelsMatch(globs, labels map[string]string) bool {
	for label, glob := range globs {
		value, there := labels[label]
		if ok, err := path.Match(glob, value); !there || !ok || err != nil {
			return false
		}
	}
	return true
}

func (s *BatchState) text() string {
	switch {
	case s.Evict:
		return "evict"
	case s.Squeeze && s.Closed:
		return "close"
	case s.Squeeze:
		return fmt.Sprintf("squeeze to %d%%", s.Percent)
	case s.Closed:
		return "take no new"
	}
	return "open"
}
