package top

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// head is who tells, whether it acts, and how the node is.
func (f *frame) head() []string {
	s := f.Status
	if s == nil {
		l := f.line()
		l.put(title, "sluice top")
		l.put(plain, gap+"waiting for the plugin")
		return append([]string{l.String()}, f.problem()...)
	}
	lines := append(f.words(0, f.titles()), f.problem()...)
	if s.Why != "" {
		lines = append(lines, f.fold(warn, string(s.Mode)+": "+s.Why, 2)...)
	}
	return append(lines, f.node()...)
}

func (f *frame) titles() []item {
	s := f.Status
	items := []item{{title, "sluice " + s.Version}, {modeTone(control.Mode(s.Mode)), "mode " + string(s.Mode)}}
	if s.Loop != nil {
		items = append(items, item{modeTone(s.Loop.Mode), "loop " + string(s.Loop.Mode)})
	}
	r := &s.Runtime
	switch {
	case r.Connected:
		items = append(items, item{plain, r.Name + " " + r.Version + " for " + humanize.Lasting(s.Time.Sub(r.ChangedAt))})
	case r.ChangedAt.IsZero():
		items = append(items, item{bad, "NO RUNTIME"})
	default:
		items = append(items, item{bad, "NO RUNTIME for " + humanize.Lasting(s.Time.Sub(r.ChangedAt))})
	}
	if f.Paused {
		items = append(items, item{warn, "PAUSED"})
	}
	return append(items, item{plain, s.Time.Format(time.TimeOnly)})
}

func modeTone(mode control.Mode) tone {
	if mode == control.On {
		return good
	}
	return warn
}

// problem is why what is shown isn't of now.
func (f *frame) problem() []string {
	if f.Problem == "" {
		return nil
	}
	lines := f.fold(bad, "NOT ANSWERING: "+f.Problem, 3)
	if f.Status != nil {
		l := f.line()
		l.put(plain, "What is shown is of "+f.Status.Time.Format(time.TimeOnly)+"; it is tried again.")
		lines = append(lines, l.String())
	}
	return lines
}

// node is what the machine does.
func (f *frame) node() []string {
	loop := f.Status.Loop
	l := f.line()
	switch {
	case loop == nil:
		l.put(plain, "node: what it does is not known: the plugin has no control loop")
		return []string{l.String()}
	case loop.Problem != "":
		l.put(bad, "the loop does not run: "+loop.Problem)
		return []string{l.String()}
	case loop.MeasuredAt.IsZero():
		l.put(plain, "node: the loop has not looked yet")
		return []string{l.String()}
	}
	n := &loop.Node
	var items []item
	if n.CPU.MeasuredAt.IsZero() {
		items = append(items, item{plain, "CPU use not known yet"})
	} else {
		text := humanize.AlignedCPUs(n.CPU.Usage)
		if n.CPU.Limit > 0 {
			share := float64(n.CPU.Usage) / float64(n.CPU.Limit)
			text += fmt.Sprintf(" of %s CPUs %s %s", humanize.AlignedCPUs(n.CPU.Limit), bar(share, f.barLength()/3), humanize.Percent(share))
		}
		items = append(items, item{plain, text})
	}
	if m := &n.Memory; !m.MeasuredAt.IsZero() {
		items = append(items, item{plain, "mem " + humanize.ShortBytes(m.TotalBytes-m.AvailableBytes) + " of " + humanize.ShortBytes(m.TotalBytes)})
	}
	if p := &n.Pressure; !p.MeasuredAt.IsZero() {
		items = append(items, item{strained(max(p.CPUFraction, p.MemoryFraction, p.IOFraction)), "waits: CPU " + humanize.Percent(p.CPUFraction) + " mem " + humanize.Percent(p.MemoryFraction) + " I/O " + humanize.Percent(p.IOFraction)})
	}
	return f.words(0, items)
}

// strained is the tone of a share of time in which something waits.
func strained(share float64) tone {
	switch {
	case share >= 0.5:
		return bad
	case share >= 0.1:
		return warn
	}
	return plain
}

// barLength is a pool's bar, without its brackets.
func (f *frame) barLength() int { return max(6, min(60, f.Width/5)) }

// batch is what batch work may use, against what it does.
func (f *frame) batch() []string {
	loop := f.Status.Loop
	if loop == nil || loop.MeasuredAt.IsZero() {
		return nil
	}
	b := &loop.Batch
	items := []item{{title, "BATCH"}, {batchTone(b.State), string(b.State)}}
	switch {
	case b.Unlimited:
		items = append(items, item{plain, humanize.AlignedCPUs(b.Used) + " CPUs of all that are shared"})
	case b.Known && b.Budget > 0:
		share := float64(b.Used) / float64(b.Budget)
		items = append(items, item{plain, fmt.Sprintf("%s %s of %s CPUs, floor %s", bar(share, f.barLength()/2), humanize.AlignedCPUs(b.Used), humanize.AlignedCPUs(b.Budget), humanize.AlignedCPUs(b.Floor))})
	default:
		items = append(items, item{plain, humanize.AlignedCPUs(b.Used) + " CPUs, budget not known yet"})
	}
	if m := &loop.Memory; m.GoalBytes > 0 || m.UsedBytes > 0 {
		items = append(items, item{plain, "memory " + humanize.ShortBytes(m.UsedBytes) + " of " + humanize.ShortBytes(m.GoalBytes)})
	}
	if e := loop.Egress; e != nil && e.Room > 0 {
		items = append(items, item{plain, fmt.Sprintf("sends %s of %s", e.BatchSent, e.Room)})
	}
	items = append(items, item{plain, "by " + string(b.Mechanism)})
	if b.Why != "" {
		items = append(items, item{warn, b.Why})
	}
	if r := loop.Refusal; r != nil {
		items = append(items, item{warn, refusal(r)})
	}
	return f.words(len("BATCH  "), items)
}

func batchTone(w status.BatchState) tone {
	if w == status.BatchOpen {
		return good
	}
	return warn
}

func refusal(r *status.Refusal) string {
	who := humanize.Count(len(r.PodUIDs), "evicted pod")
	if r.NewBatch {
		who = "new batch work"
	}
	text := "refused: " + who
	if !r.EndsAt.IsZero() {
		text += " until " + r.EndsAt.Format(time.TimeOnly)
	}
	return text
}

// foot names the keys.
func (f *frame) foot() []string {
	if !f.Live {
		return nil
	}
	l := f.line()
	l.put(title, "q quit  p pause  c CPU  t throttled  m memory  up/down scroll  ? help")
	return []string{l.String()}
}
