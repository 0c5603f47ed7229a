package control

import (
	"cmp"
	"fmt"
	"path"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Windows decides from the time of day and the switch what batch work may do. It steps before
// the other controllers, which read the result in View.Batch.
type Windows struct {
	windows   []dayWindow
	zone      *time.Location
	pace      pace
	steady    int // consecutive steps with steady time
	begun     bool
	state     BatchState
	next      time.Time
	decisions []Decision
}

// Switch is an operator's command about batch work: of `sluice batch` for one node, or of the
// fleet's switch. It takes precedence over all windows.
type Switch struct {
	To    SwitchState
	Evict bool      // with off: running BE pods are evicted at once
	Until time.Time // end of the command; zero if it lasts until the next one
	Fleet bool      // whether it is the fleet's
}

// Strictest returns the command that holds at a time of the node's own and the fleet's: off, if
// either is off; otherwise on, if either is on. It ends when the later of two equal ones ends.
func Strictest(now time.Time, own, fleet Switch) Switch {
	fleet.Fleet = true
	first, second := own, fleet
	if rank(fleet.inForce(now)) > rank(own.inForce(now)) {
		first, second = fleet, own
	}
	if first.To = first.inForce(now); first.To == SwitchAuto {
		return Switch{}
	}
	if second.inForce(now) == first.To {
		first.Evict = first.Evict || second.Evict
		if second.Until.IsZero() || !first.Until.IsZero() && second.Until.After(first.Until) {
			first.Until = second.Until
		}
	}
	return first
}

// rank orders the positions of the switch by which one counts where two differ.
func rank(s SwitchState) int {
	return map[SwitchState]int{SwitchOn: 1, SwitchOff: 2}[s]
}

// WhyOff says that the switch stops batch work, and who has set it.
func (s *Switch) WhyOff() string {
	why := "batch is switched off"
	if s.Fleet {
		why += " by the fleet's switch"
	}
	if s.Evict {
		why += ", with eviction"
	}
	return why
}

// SwitchState is the position of the switch.
type SwitchState string

// These are the positions of the switch.
const (
	SwitchAuto SwitchState = ""    // follows the windows
	SwitchOn   SwitchState = "on"  // allows batch work whatever the windows say
	SwitchOff  SwitchState = "off" // allows none
)

// MarshalText returns "auto", "on" or "off".
func (s SwitchState) MarshalText() ([]byte, error) {
	if s == SwitchAuto {
		return []byte("auto"), nil
	}
	return []byte(s), nil
}

// UnmarshalText parses "auto", "on" or "off".
func (s *SwitchState) UnmarshalText(text []byte) error {
	if err := choose(s, text, "auto", SwitchOn, SwitchOff); err != nil {
		return err
	}
	if *s == "auto" {
		*s = SwitchAuto
	}
	return nil
}

// dayWindow is a window with its present or next occurrence.
type dayWindow struct {
	Window
	soon, open string // reason before the window and in it
	from, to   minute
	days       [7]bool // days on which it begins, by time.Weekday

	metric  metric    // of When; only valid if When has one
	knownAt time.Time // when it was known last, or the first step
	aboveAt time.Time // when it was above its value last

	span  occurrence // present or next occurrence
	valid time.Time  // begin of the time in which span is right
	until time.Time  // end of that time
}

// steadyForEviction is the number of steps with steady time before a window evicts. A clock
// that was wrong at boot or has jumped must not end work.
const steadyForEviction = 3

// NewWindows returns the controller for times in that zone on a node with these pools.
func NewWindows(windows []Window, pools []string, zone *time.Location, interval time.Duration) (*Windows, error) {
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
		if err == nil && c.When.Metric != "" {
			c.metric, err = parseMetric(c.When.Metric, pools)
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
	for i := range w.windows {
		w.windows[i].measure(v, w.pace.interval)
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

// Next returns when the time alone changes the state, as of the last step. It is zero if that
// is not within a week.
func (w *Windows) Next() time.Time { return w.next }

// inForce returns the position of the switch after its end time has been applied.
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
		return BatchState{Closed: true, Squeeze: true, Evict: s.Evict, Why: s.WhyOff()}
	}
	return state
}

// byTime joins the windows that are open now and takes the strictest of each of their terms.
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
		state.join(c, now)
	}
	return state
}

// join applies the window's terms where they are stricter.
func (s *BatchState) join(c *dayWindow, now time.Time) {
	if c.Percent == 0 {
		if !s.Closed || !s.Squeeze || s.Percent > 0 || c.evicts(now) && !s.Evict {
			s.Why = c.open
		}
		s.Closed, s.Squeeze, s.Percent, s.Evict = true, true, 0, s.Evict || c.evicts(now)
		return
	}
	if !s.Squeeze || s.Percent > c.Percent {
		s.Squeeze, s.Percent = true, c.Percent
		s.Why = cmp.Or(s.Why, c.open)
	}
}

// Coming returns what the switch or a window does to batch work now, or what a window will do within
// that time or within its grace, as of the last step. Without an end, none is known; the zero Notice
// stands for nothing. Of several windows the strictest counts.
func (w *Windows) Coming(v *View, s Switch, within time.Duration) Notice {
	var on time.Time // until then the switch lets batch work run
	switch s.inForce(v.Now) {
	case SwitchOff:
		n := Notice{Kind: NoticeSqueeze, Cause: NoticeBySwitch, BeginsAt: v.Now, EndsAt: s.Until, Why: s.WhyOff()}
		if s.Evict {
			n.Kind = NoticeEvict
		}
		return n
	case SwitchOn:
		if on = s.Until; on.IsZero() {
			return Notice{}
		}
	}
	var strictest *dayWindow
	for i := range w.windows {
		c := &w.windows[i]
		begin := c.span.from
		if begin.Before(on) {
			begin = on
		}
		if begin.Before(c.span.to) && v.Now.Before(c.span.to) && !v.Now.Before(begin.Add(-max(within, c.Grace))) && c.concerns(v) && c.stricter(strictest) {
			strictest = c
		}
	}
	if strictest == nil {
		return Notice{}
	}
	n := Notice{Kind: NoticeSqueeze, Cause: NoticeByWindow, BeginsAt: strictest.span.from, EndsAt: strictest.span.to, Why: strictest.open}
	if strictest.evicts(v.Now) {
		n.Kind = NoticeEvict
	}
	if n.BeginsAt.Before(on) {
		n.BeginsAt = on
	}
	return n
}

// stricter reports whether a window takes more from batch work than another one, or begins earlier.
func (c *dayWindow) stricter(other *dayWindow) bool {
	switch {
	case other == nil:
		return true
	case c.Evict != other.Evict:
		return c.Evict
	case c.Percent != other.Percent:
		return c.Percent < other.Percent
	}
	return c.span.from.Before(other.span.from)
}

// measure notes whether the forecast that the window needs is known, and above its value.
func (c *dayWindow) measure(v *View, interval time.Duration) {
	if c.When.Metric == "" {
		return
	}
	percent, _, ok := c.metric.value(v, interval, nil)
	if ok || c.knownAt.IsZero() {
		c.knownAt = v.Now
	}
	if ok && percent > float64(c.When.Above) {
		c.aboveAt = v.Now
	}
}

// isForecast reports whether the window needs no forecast, or its forecast is, or was in the last
// ten minutes, above its value.
func (c *dayWindow) isForecast(now time.Time) bool {
	return c.When.Metric == "" || waiting(c.aboveAt, now, soon)
}

// evicts reports whether the window evicts. It does not without the forecast that it needs.
func (c *dayWindow) evicts(now time.Time) bool { return c.Evict && c.isForecast(now) }

// blindAfter is the time without a forecast after which a window that needs one is open all the same.
// A plugin that starts has none for a moment.
const blindAfter = time.Minute

// concerns reports whether the window applies: if it is forecast, or the forecast is not known, and if
// it has no labels or an LS pod runs whose labels match all of the window's.
func (c *dayWindow) concerns(v *View) bool {
	if !c.isForecast(v.Now) && waiting(c.knownAt, v.Now, blindAfter) {
		return false
	}
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
