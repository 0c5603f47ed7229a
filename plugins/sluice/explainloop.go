package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// decisionsExplained is how many decisions explain tells.
const decisionsExplained = 10

// podTrail reads a pod's last decisions in the audit trail. None is left out where it
// can't be read: the plugin knows the last ones.
func podTrail(l *status.Loop, pod string) []audit.Entry {
	if l == nil || l.StateDir == "" {
		return nil
	}
	var last []audit.Entry
	audit.Read(os.DirFS(l.StateDir), audit.Filter{Object: pod}, func(e audit.Entry) error { //nolint:errcheck // see above
		if len(last) == decisionsExplained {
			last = append(last[:0], last[1:]...)
		}
		last = append(last, e)
		return nil
	})
	return last
}

// podLoopText is what the loop knows of a pod: who disturbs it, what a person could
// do, and what was decided.
func podLoopText(out *strings.Builder, l *status.Loop, pod string, trail []audit.Entry) {
	if l == nil {
		return
	}
	for i := range l.Disturbed {
		if d := &l.Disturbed[i]; d.Ref == pod {
			disturbanceText(out, d)
		}
	}
	rows := [][]string{{"ADVICE FOR", "WHAT"}}
	for _, a := range l.Advice {
		if (audit.Filter{Object: pod}).Names(a.Object) {
			rows = append(rows, []string{a.Object, a.Text})
		}
	}
	if len(rows) > 1 {
		out.WriteString("\n")
		table(out, "", columns, rows)
	}
	decided := podDecisions(pod, l.Decisions, trail)
	if len(decided) == 0 {
		return
	}
	decided = decided[max(0, len(decided)-decisionsExplained):]
	out.WriteString("\nDECIDED\n")
	decisionsText(out, decided)
}

// disturbanceText tells what a pod waits for more than when no batch work runs.
func disturbanceText(out *strings.Builder, d *control.Disturbance) {
	out.WriteString("\n")
	rows := [][]string{{"DISTURBED IN", "CALM", "ABOVE IT NOW"}}
	for _, part := range []struct {
		name         string
		calm, excess float64
	}{
		{"CPU pressure", d.Calm.CPU, d.Excess.CPU},
		{"memory pressure", d.Calm.Memory, d.Excess.Memory},
		{"I/O pressure", d.Calm.IO, d.Excess.IO},
		{"run delay", d.Calm.RunDelay, d.Excess.RunDelay},
		{"throttled periods", d.Calm.Throttled, d.Excess.Throttled},
	} {
		if part.calm > 0 || part.excess > 0 {
			rows = append(rows, []string{part.name, humanize.Percent(part.calm), humanize.Percent(part.excess)})
		}
	}
	switch {
	case len(rows) > 1:
		table(out, "", columns, rows)
	default:
		out.WriteString("Nothing disturbs it.\n")
	}
	if !d.Learned {
		paragraph(out, "", "What is calm is still being learned.")
	}
	if len(d.Suspects) > 0 {
		names := make([]string, len(d.Suspects))
		for i, s := range d.Suspects {
			names[i] = fmt.Sprintf("%s (%s of what batch work uses)", s.Ref, humanize.Percent(s.Share))
		}
		paragraph(out, "", "Suspects, as a hint: "+strings.Join(names, ", ")+".")
	}
}
