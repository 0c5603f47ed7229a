package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Restored writes what was, or would be, restored from the journal in a folder; missing says
// that the folder doesn't exist.
func Restored(w io.Writer, r *status.Restored, dir string, missing bool) error {
	var out strings.Builder
	if len(r.Changes)+len(r.LeftAlone)+r.IRQs+r.Disks+r.Limited == 0 {
		fmt.Fprintf(&out, "Nothing to give back: %s tells of no change since the node was started%s.\n", dir, why(missing))
		return flush(w, &out)
	}
	if len(r.Changes) > 0 {
		rows := [][]string{{"WHERE", "SETTING", "FROM", "TO"}}
		for _, c := range r.Changes {
			rows = append(rows, []string{c.Where, c.Knob, c.From, c.To})
		}
		terminal.Table(&out, "", terminal.Columns, rows)
		out.WriteString("\n")
	}
	verb := "given back"
	if r.DryRun {
		verb = "to be given back"
	}
	fmt.Fprintf(&out, "%s %s", humanize.Count(len(r.Changes), "setting"), verb)
	if r.IRQs > 0 {
		fmt.Fprintf(&out, ", and the CPUs of %s", humanize.Count(r.IRQs, "IRQ"))
	}
	if r.Disks > 0 {
		fmt.Fprintf(&out, ", and the parameters of %s", humanize.Count(r.Disks, "disk"))
	}
	if r.Limited > 0 {
		fmt.Fprintf(&out, ", and what %s may send", humanize.Count(r.Limited, "pod"))
	}
	out.WriteString(".\n")
	if len(r.LeftAlone) > 0 {
		paragraph(&out, "", "Left alone, as somebody else has changed them since: "+strings.Join(r.LeftAlone, ", ")+".")
	}
	return flush(w, &out)
}

// NoDecisions writes that a state folder has no matching decisions; missing says that the
// folder doesn't exist.
func NoDecisions(w io.Writer, dir string, missing bool) error {
	_, err := fmt.Fprintf(w, "No such decision in %s%s.\n", dir, why(missing))
	return err
}

// why explains an empty answer if the folder doesn't exist.
func why(missing bool) string {
	if missing {
		return ", which is not there: the plugin has not run, or keeps its state elsewhere"
	}
	return ""
}
