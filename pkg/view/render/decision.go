package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Decision writes a decision in lines of at most 80 columns, with the numbers on which it is
// based if numbers is set.
func Decision(w io.Writer, e *audit.Entry, numbers bool) error {
	_, err := io.WriteString(w, decisionText(e, numbers))
	return err
}

func decisionText(e *audit.Entry, numbers bool) string {
	reported := control.ReportedDecision(*e)
	head := e.Time.Local().Format(time.DateTime) + "  " + e.Object + ": " + reported.Change()
	if e.Mode != "on" {
		head += " (" + string(e.Mode) + ")"
	}
	var text strings.Builder
	const indent = "    "
	for i, line := range terminal.Fold(terminal.Printable(head), terminal.Columns-len(indent)) {
		if i > 0 {
			text.WriteString(indent)
		}
		text.WriteString(line + "\n")
	}
	for _, line := range terminal.Fold(terminal.Printable(e.Controller+": "+e.Why), terminal.Columns-len(indent)) {
		text.WriteString(indent + line + "\n")
	}
	if numbers && len(e.Facts) > 0 {
		for _, line := range terminal.Fold(terminal.Printable(factsText(&e.Decision)), terminal.Columns-len(indent)) {
			text.WriteString(indent + line + "\n")
		}
	}
	return text.String()
}

// factsText lists the numbers on which a decision is based. For a decision of several steps it
// lists those of the first and of the last step if they differ.
func factsText(d *control.Decision) string {
	facts := make([]string, len(d.Facts))
	for i, f := range d.Facts {
		name, value := factText(f)
		if i < len(d.FirstFacts) && d.FirstFacts[i].Name == f.Name {
			if _, first := factText(d.FirstFacts[i]); first != value {
				value = first + " to " + value
			}
		}
		facts[i] = name + " " + value
	}
	return strings.Join(facts, ", ")
}

// factText returns a fact's name, and its value with the unit that the end of the name implies.
func factText(f control.Fact) (name, value string) {
	for _, unit := range []struct {
		suffix string
		text   func(float64) string
	}{
		{"_bytes_per_second", func(x float64) string { return humanize.Bytes(int64(x)) + "/s" }},
		{"_bytes", func(x float64) string { return humanize.Bytes(int64(x)) }},
		{"_cpus", func(x float64) string {
			if x == 1 {
				return "1 CPU"
			}
			return fmt.Sprintf("%.4g CPUs", x)
		}},
		{"_percent", func(x float64) string { return fmt.Sprintf("%.4g%%", x) }},
		{"_seconds", func(x float64) string { return fmt.Sprintf("%.4g s", x) }},
	} {
		if name, has := strings.CutSuffix(f.Name, unit.suffix); has {
			return strings.ReplaceAll(name, "_", " "), unit.text(f.Value)
		}
	}
	return strings.ReplaceAll(f.Name, "_", " "), fmt.Sprintf("%.6g", f.Value)
}
