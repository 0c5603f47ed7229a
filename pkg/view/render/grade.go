package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/sim/grade"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Grades writes where workloads belong: a table as comments, and then the classify part of the
// configuration, so that the whole is a file that 'sluice check' reads.
func Grades(w io.Writer, all []grade.Workload, mixed []string, part string) error {
	var b strings.Builder
	rows := [][]string{{"WORKLOAD", "NOW", "GRADE", "PODS", "REQUEST", "CPUS", "P99", "STEADY", "WAITS", "THROTTLED", "WHY"}}
	for i := range all {
		w := &all[i]
		waited := share(w.WaitsRatio)
		if w.WaitsRatio == nil && w.PressureFraction != nil {
			waited = share(w.PressureFraction) + " PSI"
		}
		rows = append(rows, []string{
			w.Name, strings.TrimSpace(w.Class.String() + " " + w.Pool), string(w.Grade), fmt.Sprintf("%.1f", w.Pods), humanize.CPUs(w.Request),
			fmt.Sprintf("%.2f", w.MeanCPUs), fmt.Sprintf("%.2f", w.P99CPUs), percentTo(w.SteadyFraction, 0), waited, share(w.ThrottledFraction), w.Why,
		})
	}
	terminal.Table(&b, "", terminal.Unlimited, rows)
	b.WriteString(`
CPUS    of a pod on average       P99        of all its pods on a node
STEADY  use in all but the lowest tenth of the time, of P99
WAITS   time in which its threads waited for a CPU, of the CPU time that they used
        (PSI: of all time)        THROTTLED  periods of its CPU limit
`)
	for _, namespace := range mixed {
		fmt.Fprintf(&b, "\nNamespace %s has workloads of several grades: tell them apart by labels in classify, or\ngive their pods the annotation pool.sluice.dev or class.sluice.dev.\n", terminal.Printable(namespace))
	}
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
	}
	out.WriteString(part)
	return flush(w, &out)
}

func share(part *float64) string {
	if part == nil {
		return "-"
	}
	return percentTo(*part, 1)
}
