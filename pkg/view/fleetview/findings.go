package fleetview

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Diagnosis writes what the doctor found on all nodes, 80 columns wide.
func Diagnosis(w io.Writer, d *fleet.Diagnosis) error {
	var out strings.Builder
	text := fmt.Sprintf("Nothing keeps Sluice from working on %s that answered", humanize.Count(d.Answered, "node"))
	if fails := d.Counts["fail"]; fails > 0 {
		text = fmt.Sprintf("%s keep Sluice from working on some of the %s that answered", humanize.Count(fails, "finding"), humanize.Count(d.Answered, "node"))
		if fails == 1 {
			text = strings.Replace(text, " keep ", " keeps ", 1)
		}
	}
	text += fmt.Sprintf(": %s, %s.", humanize.Count(d.Counts["warn"], "warning"), humanize.Count(d.Counts["note"], "note"))
	for _, line := range terminal.Fold(text, terminal.Columns) {
		out.WriteString(line + "\n")
	}
	rows := [][]string{{"LEVEL", "NODES", "FINDING"}}
	for i := range d.Findings {
		f := &d.Findings[i]
		what := f.Area + ", " + f.Name + ": " + f.What
		if f.Variants > 1 {
			what += fmt.Sprintf(" (on %s; %s in all)", f.Nodes[0], humanize.Count(f.Variants, "different text"))
		}
		rows = append(rows, []string{f.Level, strconv.Itoa(len(f.Nodes)), what}, []string{"", "", "on: " + list(f.Nodes)})
		if f.Do != "" {
			rows = append(rows, []string{"", "", "do: " + f.Do})
		}
	}
	table(&out, rows)
	asked(&out, &d.Asked)
	_, err := io.WriteString(w, out.String())
	return err
}
