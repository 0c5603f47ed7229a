package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// containers draws the table of containers in at most so many lines.
func (f *frame) containers(most int) []string {
	all := f.sorted()
	if len(all) == 0 {
		l := f.line()
		l.put(title, "CONTAINERS: none")
		return []string{l.String()}
	}
	shown := max(0, most-1)
	f.last = max(0, len(all)-shown)
	first := max(0, min(f.First, f.last))
	last := min(len(all), first+shown)
	order := cmp.Or(f.Sort, ByCPU)
	l := f.line()
	l.put(title, fmt.Sprintf("  %-7s%6s %6s %5s %5s %5s  %s  CONTAINER %d-%d of %d, by %s", "CLASS", "CPU", "OF", "THROT", "MEM", "WAITS", fit("POOL", poolWidth), first+1, last, len(all), order))
	lines := []string{l.String()}
	disturbed := f.disturbed()
	for _, c := range all[first:last] {
		lines = append(lines, f.container(c, disturbed[pod(c.Ref)]))
	}
	return lines
}

// poolWidth is the width of a pool's name beside a container.
const poolWidth = 8

func (f *frame) container(c *status.Container, disturbed bool) string {
	l := f.line()
	mark, t := " ", plain
	throttled := 0.0
	if c.Usage != nil {
		throttled = c.Usage.CPU.ThrottledFraction
	}
	switch {
	case disturbed:
		mark, t = "d", bad
	case throttled > 0:
		mark, t = "t", warn
	}
	l.put(t, mark+" ")
	l.put(plain, fit(cmp.Or(status.ClassText(c.Class, c.Tier), "-"), 7))
	f.usage(l, c)
	where := c.Pool
	if where == "" && c.Class.Pinned() {
		where = "own CPUs"
	}
	l.put(plain, gap+fit(where, poolWidth)+gap)
	l.put(t, fit(c.Ref, l.left))
	return l.String()
}

// usage shows a container's usage in relation to its CPU limit or its own CPUs.
func (f *frame) usage(l *line, c *status.Container) {
	u := c.Usage
	if u == nil {
		l.put(plain, right("-", 6)+" "+right(of(c), 6)+" "+right("-", 5)+" "+right("-", 5)+" "+right("-", 5))
		return
	}
	used, throttled, memory, waits := "-", "-", "-", "-"
	if !u.CPU.MeasuredAt.IsZero() {
		used = humanize.AlignedCPUs(u.CPU.Usage)
		throttled = humanize.Percent(u.CPU.ThrottledFraction)
	}
	if !u.Memory.MeasuredAt.IsZero() {
		memory = humanize.ShortBytes(u.Memory.WorkingSetBytes)
	}
	if !u.Pressure.MeasuredAt.IsZero() {
		waits = humanize.Percent(u.Pressure.CPUFraction)
	}
	l.put(plain, right(used, 6)+" "+right(of(c), 6)+" ")
	t := plain
	if u.CPU.ThrottledFraction > 0 {
		t = warn
	}
	l.put(t, right(throttled, 5))
	l.put(plain, " "+right(memory, 5)+" ")
	l.put(strained(u.Pressure.CPUFraction), right(waits, 5))
}

// of returns how much CPU a container may use, "" if only its pool bounds it.
func of(c *status.Container) string {
	switch u := c.Usage; {
	case c.Class.Pinned() && c.Pool == "":
		return fmt.Sprint(c.CPUs.Size())
	case u != nil && u.CPU.LoopLimit > 0:
		return humanize.AlignedCPUs(u.CPU.LoopLimit)
	case u != nil && u.CPU.Limit > 0:
		return humanize.AlignedCPUs(u.CPU.Limit)
	}
	return ""
}

// sorted returns the containers in the chosen order: the highest values first, and then by
// name.
func (f *frame) sorted() []*status.Container {
	all := make([]*status.Container, len(f.Status.Containers))
	for i := range f.Status.Containers {
		all[i] = &f.Status.Containers[i]
	}
	weight := func(c *status.Container) float64 {
		switch u := c.Usage; {
		case u == nil:
			return -1
		case f.Sort == ByThrottled:
			return u.CPU.ThrottledFraction
		case f.Sort == ByMemory:
			return float64(u.Memory.WorkingSetBytes)
		default:
			return float64(u.CPU.Usage)
		}
	}
	slices.SortStableFunc(all, func(a, b *status.Container) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Ref, b.Ref))
	})
	return all
}

// disturbed returns the pods that wait longer because of batch work than they do without it.
func (f *frame) disturbed() map[string]bool {
	pods := map[string]bool{}
	if f.Status.Loop != nil {
		for i := range f.Status.Loop.Disturbed {
			if d := &f.Status.Loop.Disturbed[i]; len(d.Suspects) > 0 {
				pods[d.Ref] = true
			}
		}
	}
	return pods
}

// pod returns the pod of "namespace/pod/container".
func pod(ref string) string { return ref[:max(0, strings.LastIndexByte(ref, '/'))] }
