package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// notes lists disturbed pods, settings that other programs keep changing, and advice, one per
// line.
func (f *frame) notes() []string {
	s := f.Status
	var lines []string
	note := func(t tone, word, text string) {
		l := f.line()
		l.put(t, word+gap)
		l.put(plain, text)
		lines = append(lines, l.String())
	}
	for _, n := range s.Neighbours {
		note(warn, "NEIGHBOUR", fmt.Sprintf("%s: %s", n.Kind, n.Response))
	}
	for _, c := range s.Contested {
		note(warn, "CONTESTED", c+": somebody else keeps changing it")
	}
	if s.Loop == nil {
		return lines
	}
	for i := range s.Loop.Disturbed {
		if d := &s.Loop.Disturbed[i]; len(d.Suspects) > 0 {
			note(bad, "DISTURBED", d.Ref+": "+disturbance(d))
		}
	}
	for i := range s.Loop.Disturbed {
		d := &s.Loop.Disturbed[i]
		for k := range d.Bounds {
			if b := &d.Bounds[k]; !b.BrokenAt.IsZero() {
				note(bad, "BOUND", fmt.Sprintf("%s: waits %s of its time (%s), its bound is %s", d.Ref, humanize.Percent(b.WaitingFraction), b.Kind, humanize.Percent(b.BoundFraction)))
			}
		}
	}
	for i := range s.Loop.Disturbed {
		if o := s.Loop.Disturbed[i].Objective; o != nil && !o.BrokenAt.IsZero() {
			note(bad, "OBJECTIVE", fmt.Sprintf("%s: answers %s, its objective is %s", s.Loop.Disturbed[i].Ref, o.Now(), o.Most()))
		}
	}
	for i := range s.Loop.Disturbed {
		if c := s.Loop.Disturbed[i].Cycles; c != nil && c.Slowed() {
			note(bad, "SLOWED", fmt.Sprintf("%s: needs %.2g cycles per instruction, %.2g are usual", s.Loop.Disturbed[i].Ref, c.PerInstructionRatio, c.UsualRatio))
		}
	}
	for _, a := range s.Loop.Advice {
		note(title, "ADVICE", a.Object+": "+a.Text)
	}
	return lines
}

// disturbance says for which resources a pod waits longer than it does without batch work, and
// which batch pods may cause it.
func disturbance(d *control.Disturbance) string {
	var parts []string
	for _, part := range []struct {
		name   string
		excess float64
	}{
		{"CPU", d.Excess.CPUFraction}, {"memory", d.Excess.MemoryFraction}, {"I/O", d.Excess.IOFraction}, {"run delay", d.Excess.RunDelayFraction}, {"throttled", d.Excess.ThrottledFraction},
	} {
		if part.excess >= 0.005 {
			parts = append(parts, part.name+" +"+humanize.Percent(part.excess))
		}
	}
	var by []string
	for _, s := range d.Suspects {
		by = append(by, s.Ref+" "+humanize.Percent(s.UsageFraction))
	}
	return strings.Join(parts, ", ") + "; perhaps by " + strings.Join(by, ", ")
}

// decisions lists the last decisions under a header, the newest first.
func (f *frame) decisions() []string {
	if f.Status.Loop == nil || len(f.Status.Loop.Decisions) == 0 {
		return nil
	}
	l := f.line()
	l.put(title, "DECIDED LAST (sluice log --why tells more)")
	lines := []string{l.String()}
	all := f.Status.Loop.Decisions
	for _, d := range slices.Backward(all[max(0, len(all)-mostDecisions):]) {
		l := f.line()
		l.put(plain, d.Time.Format(time.TimeOnly)+" ")
		reported := control.ReportedDecision(d)
		if d.Mode != control.On {
			l.put(warn, "("+string(d.Mode)+") ")
		}
		l.put(title, d.Object+": "+reported.Change())
		l.put(plain, ": "+d.Why)
		lines = append(lines, l.String())
	}
	return lines
}

// help explains the keys and the letters.
func (f *frame) help() []string {
	var lines []string
	for _, text := range []string{
		"",
		"c t m       sort containers by CPU, throttling or memory",
		"up down     scroll containers by one, also k and j",
		"PgUp PgDn   by ten; Home and End: to the first and the last",
		"p           pause, and go on",
		"?           this help, and back",
		"q Ctrl-C    quit",
		"",
		"CPUS: each CPU is a letter, its owner, and a digit, its load in tenths;",
		"# is 95% or more, . not known. Where there are many, a capital is a CPU",
		"that is busy for half of the time or more. P is a package, N a NUMA node;",
		"| parts L3 domains, the threads of a core are side by side.",
		"POOL: the bar is the load, | in it the ends of the band; WAITS is the share",
		"of time in which some task waited for a CPU, CTRS counts containers. NOTE: it",
		"lacks CPUs that no other pool can give, wants another size, or is too small",
		"for its band.",
		"CONTAINER: d is disturbed by batch work, t was throttled; OF is its limit.",
	} {
		l := f.line()
		l.put(plain, text)
		lines = append(lines, l.String())
	}
	return lines
}
