package render

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// ExplainedDecisions is the number of decisions about a pod that Explain writes, the newest
// ones.
const ExplainedDecisions = 10

// podLoopText writes what the control loop knows about a pod: which batch pods disturb it,
// advice, and the decisions.
func podLoopText(out *strings.Builder, l *status.Loop, pod string, trail []audit.Entry) {
	if l == nil {
		return
	}
	for i := range l.Disturbed {
		if d := &l.Disturbed[i]; d.Ref == pod {
			disturbanceText(out, d)
		}
	}
	podEgressText(out, l.Egress, pod)
	rows := [][]string{{"ADVICE FOR", "WHAT"}}
	for _, a := range l.Advice {
		if (audit.Filter{Object: pod}).Names(a.Object) {
			rows = append(rows, []string{a.Object, a.Text})
		}
	}
	if len(rows) > 1 {
		out.WriteString("\n")
		terminal.Table(out, "", terminal.Columns, rows)
	}
	decided := podDecisions(pod, l.Decisions, trail)
	if len(decided) == 0 {
		return
	}
	decided = decided[max(0, len(decided)-ExplainedDecisions):]
	out.WriteString("\nDECIDED\n")
	decisionsText(out, decided)
}

// disturbanceText says for which resources a pod waits longer than it does without batch work.
func disturbanceText(out *strings.Builder, d *control.Disturbance) {
	out.WriteString("\n")
	rows := [][]string{{"DISTURBED IN", "CALM", "ABOVE IT NOW"}}
	for _, part := range []struct {
		name         string
		calm, excess float64
	}{
		{"CPU pressure", d.Calm.CPUFraction, d.Excess.CPUFraction},
		{"memory pressure", d.Calm.MemoryFraction, d.Excess.MemoryFraction},
		{"I/O pressure", d.Calm.IOFraction, d.Excess.IOFraction},
		{"run delay", d.Calm.RunDelayFraction, d.Excess.RunDelayFraction},
		{"throttled periods", d.Calm.ThrottledFraction, d.Excess.ThrottledFraction},
	} {
		if part.calm > 0 || part.excess > 0 {
			rows = append(rows, []string{part.name, humanize.Percent(part.calm), humanize.Percent(part.excess)})
		}
	}
	switch {
	case len(rows) > 1:
		terminal.Table(out, "", terminal.Columns, rows)
	default:
		out.WriteString("Nothing disturbs it.\n")
	}
	cyclesText(out, d.Cycles)
	boundsText(out, d.Bounds)
	objectiveText(out, d.Objective)
	if !d.Learned {
		paragraph(out, "", "What is calm is still being learned.")
	}
	if len(d.Suspects) > 0 {
		names := make([]string, len(d.Suspects))
		for i, s := range d.Suspects {
			names[i] = fmt.Sprintf("%s (%s of what batch work uses)", s.Ref, humanize.Percent(s.UsageFraction))
		}
		paragraph(out, "", "Suspects, as a hint: "+strings.Join(names, ", ")+".")
	}
}

// boundsText says which bounds of slo.sluice.dev a pod has, and which of them are broken.
func boundsText(out *strings.Builder, bounds []control.Bound) {
	if len(bounds) == 0 {
		return
	}
	out.WriteString("\n")
	rows := [][]string{{"BOUND ON", "MOST", "NOW", "STATE"}}
	for i := range bounds {
		b := &bounds[i]
		now, state := humanize.Percent(b.WaitingFraction), "kept"
		switch {
		case !b.Measured:
			now, state = "?", "not measured"
		case !b.BrokenAt.IsZero():
			state = "broken since " + moment(b.BrokenAt)
		}
		rows = append(rows, []string{string(b.Kind), humanize.Percent(b.BoundFraction), now, state})
	}
	terminal.Table(out, "", terminal.Columns, rows)
	for i := range bounds {
		if bounds[i].Alone {
			paragraph(out, "", "Advice: "+bounds[i].Advice()+".")
		}
	}
}

// objectiveText says whether a pod keeps its latency objective.
func objectiveText(out *strings.Builder, o *control.Objective) {
	if o == nil {
		return
	}
	out.WriteString("\n")
	now, state := "?", "not measured"
	if o.Measured {
		now, state = fmt.Sprintf("%s (of %d requests)", o.Now(), o.Requests), "kept"
	}
	if !o.BrokenAt.IsZero() {
		state = "broken since " + moment(o.BrokenAt)
	}
	terminal.Table(out, "", terminal.Columns, [][]string{{"OBJECTIVE FOR", "MOST", "NOW", "STATE"}, {o.Metric, o.Most(), now, state}})
	if advice := o.Advice(); advice != "" {
		paragraph(out, "", "Advice: "+advice+".")
	} else if o.Problem != "" {
		paragraph(out, "", "The histogram can't be read now: "+o.Problem+".")
	}
}

// cyclesText says how many cycles per instruction a pod needs.
func cyclesText(out *strings.Builder, c *control.Cycles) {
	switch {
	case c == nil:
	case !c.Learned:
		fmt.Fprintf(out, "It needs %.2g cycles per instruction; what is usual is not known yet.\n", c.PerInstructionRatio)
	default:
		fmt.Fprintf(out, "It needs %.2g cycles per instruction, and usually %.2g; %d of the latest 5\ncounts had more than %.2g.\n", c.PerInstructionRatio, c.UsualRatio, c.Outliers, c.LimitRatio)
	}
}
