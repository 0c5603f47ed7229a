// Package top draws the running plugin's state as one frame of a terminal: the machine's CPUs
// by owner with their load, the pools with their bands, batch work, the busiest containers,
// disturbed pods, advice and the last decisions.
//
// A frame is ASCII, so it needs no font and no locale, and text from pods is escaped. Colours
// only repeat what letters show. The package is pure: the same input gives the same frame.
package top

import (
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology"
)

// State is the input for a frame.
type State struct {
	Status  *status.Status    // nil: the plugin has not answered yet
	Machine *topology.Machine // nil: unknown
}

// Order is the sort order of containers.
type Order string

// These orders are supported.
const (
	ByCPU       Order = "CPU"
	ByThrottled Order = "throttled"
	ByMemory    Order = "memory"
)

// Options say how to draw a frame.
type Options struct {
	Width   int    // maximum width of every line
	Height  int    // maximum number of lines; 0 for no limit
	Colour  bool   // use the eight colours of any terminal
	Sort    Order  // "" for CPU
	First   int    // index of the container at the top
	Problem string // why the status is out of date; "" if it is not
	Paused  bool
	Live    bool // show the keys in the last line
	Help    bool // show the meaning of keys and letters below the head
}

// Render draws a frame: lines of at most Width columns, without a newline at the end.
func Render(state State, o Options) string {
	f := frame{Options: o, State: state}
	lines := f.draw()
	if o.Height > 0 && len(lines) > o.Height {
		lines = lines[:o.Height]
	}
	return strings.Join(lines, "\n")
}

// Last returns the greatest First beyond which scrolling has no effect.
func Last(state State, o Options) int {
	f := frame{Options: o, State: state}
	f.draw()
	return f.last
}

// frame is a frame while it is drawn.
type frame struct {
	Options
	State
	last int
}

// These are the minimum and maximum heights of parts of a frame, in lines including their
// headers.
const (
	leastGrid       = 3
	leastPools      = 4
	leastContainers = 3
	leastDecisions  = 2
	mostDecisions   = 10
)

func (f *frame) draw() []string {
	lines := f.head()
	switch {
	case f.Help:
		return f.withFoot(append(lines, f.help()...))
	case f.Status == nil:
		return f.withFoot(lines)
	}
	lines = append(lines, f.grid(f.share(20, 9, leastGrid))...)
	lines = append(lines, clip(f.pools(), f.share(5, 1, leastPools), f.more)...)
	lines = append(lines, f.batch()...)
	notes, decisions := f.notes(), f.decisions()
	if f.Height == 0 {
		lines = append(lines, f.containers(len(f.Status.Containers)+1)...)
		return f.withFoot(append(append(lines, notes...), decisions...))
	}
	few, room := max(1, f.Height/12), f.Height-len(lines)-len(f.foot())
	held := min(len(f.Status.Containers)+1, leastContainers)
	room -= held
	grant := func(wanted int) int {
		granted := max(0, min(wanted, room))
		room -= granted
		return granted
	}
	shown, last := grant(min(len(notes), few)), 0
	if room >= leastDecisions {
		last = grant(min(len(decisions), max(few, leastDecisions)))
	}
	held += grant(len(f.Status.Containers) + 1 - held)
	shown += grant(len(notes) - shown)
	if last > 0 {
		last += grant(len(decisions) - last)
	}
	lines = append(lines, f.containers(held)...)
	lines = append(lines, clip(notes, shown, f.more)...)
	lines = append(lines, decisions[:last]...)
	return f.withFoot(lines)
}

// withFoot adds the foot at the last line of the terminal.
func (f *frame) withFoot(lines []string) []string {
	foot := f.foot()
	if f.Height > 0 && len(lines)+len(foot) > f.Height {
		lines = lines[:max(0, f.Height-len(foot))]
	}
	for f.Height > 0 && len(foot) > 0 && len(lines)+len(foot) < f.Height {
		lines = append(lines, "")
	}
	return append(lines, foot...)
}

// share returns parts of whole of the height, but at least least. If the height is unlimited,
// so is the share.
func (f *frame) share(whole, parts, least int) int {
	if f.Height == 0 {
		return unbounded
	}
	return max(least, f.Height*parts/whole)
}

const unbounded = 1 << 20

// clip omits lines beyond the maximum, and says how many.
func clip(lines []string, most int, more func(int) string) []string {
	if len(lines) <= most || most < 1 {
		return lines[:min(len(lines), max(0, most))]
	}
	return append(lines[:most-1:most-1], more(len(lines)-most+1))
}

func (f *frame) more(n int) string {
	l := f.line()
	l.put(plain, "... and "+humanize.Count(n, "line")+" more")
	return l.String()
}
