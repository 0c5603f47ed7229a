package render

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// egressText says what batch work sends.
func egressText(e *status.Egress) string {
	if e.Room == 0 {
		return "not limited: " + cmp.Or(e.Problem, "nothing was measured yet")
	}
	text := fmt.Sprintf("batch sends %s of at most %s; the link (%s) %s of %s", e.BatchSent, e.Room,
		strings.Join(e.Devices, ", "), e.Sent, e.Speed)
	failed := 0
	for i := range e.Pods {
		if e.Pods[i].Problem != "" {
			failed++
		}
	}
	if failed > 0 {
		text += fmt.Sprintf("; %s not limited: 'sluice explain' tells why", humanize.Count(failed, "pod"))
	}
	if e.Problem != "" {
		text += "; the link can't be read: " + e.Problem
	}
	return text
}

// podEgressText says what a pod of batch work sends.
func podEgressText(out *strings.Builder, e *status.Egress, pod string) {
	if e == nil {
		return
	}
	for i := range e.Pods {
		p := &e.Pods[i]
		if p.Pod != pod {
			continue
		}
		out.WriteString("\n")
		switch {
		case p.Problem != "":
			paragraph(out, "", "What it sends is not limited: "+p.Problem+".")
		case p.Limit == 0:
			paragraph(out, "", "It sends "+p.Sent.String()+", and is not limited.")
		default:
			paragraph(out, "", fmt.Sprintf("It sends %s, and may send %s, as its part of the %s that batch work may send on a link of %s.",
				p.Sent, p.Limit, e.Room, e.Speed))
		}
	}
}
