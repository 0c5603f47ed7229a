package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Doctor writes a report on a node, 80 columns wide.
func Doctor(w io.Writer, r *doctor.Report) error {
	var out strings.Builder
	out.WriteString(summaryOf(r) + "\n")
	names := 0
	for i := range r.Findings {
		names = max(names, len(r.Findings[i].Name))
	}
	var rows [][]string
	for i := range r.Findings {
		f := &r.Findings[i]
		if i == 0 || f.Area != r.Findings[i-1].Area {
			out.WriteString("\n" + strings.ToUpper(terminal.Printable(f.Area)) + "\n")
			rows = nil
		}
		what := f.What
		if len(f.On) > 0 {
			what += " [" + strings.Join(f.On, ", ") + "]"
		}
		// The names have the same width in every area, so that the columns align.
		rows = append(rows, []string{fmt.Sprintf("%-4s", f.Level), fmt.Sprintf("%-*s", names, f.Name), what})
		if f.Do != "" {
			rows = append(rows, []string{"", "", "do: " + f.Do})
		}
		if i == len(r.Findings)-1 || f.Area != r.Findings[i+1].Area {
			terminal.Table(&out, "  ", terminal.Columns, rows)
		}
	}
	return flush(w, &out)
}

func summaryOf(r *doctor.Report) string {
	text := "Nothing keeps Sluice from working"
	if fails := r.Count(doctor.Fail); fails > 0 {
		text = humanize.Count(fails, "finding") + " (fail) would keep Sluice from working"
		if fails == 1 {
			text = "1 finding (fail) keeps Sluice from working"
		}
	}
	return text + ": " + humanize.Count(r.Count(doctor.Warn), "warning") + ", " + humanize.Count(r.Count(doctor.Note), "note") + "."
}
