package fleetview

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Question asks whether to switch batch work on these nodes.
func Question(word string, evict bool, nodes []string) string {
	text := fmt.Sprintf("Switch batch work to %q on %s (%s)", word, humanize.Count(len(nodes), "node"), list(nodes))
	if evict {
		text += " and evict its running pods there"
	}
	return terminal.Printable(text) + "? [y/N] "
}

// Switched writes the batch switch by node, 80 columns wide.
func Switched(w io.Writer, s *fleet.Switched) error {
	var out strings.Builder
	rows := [][]string{{"NODE", "SWITCH", "BATCH", "RESULT"}}
	for i := range s.Nodes {
		o := &s.Nodes[i]
		rows = append(rows, []string{o.Node, setting(o), cmp.Or(o.Batch, "-"), result(o)})
	}
	terminal.Table(&out, "", terminal.Columns, rows)
	switch {
	case s.DryRun && s.Word != "":
		write(&out, "", fmt.Sprintf("This was a dry run: nothing was switched. Without --dry-run, batch work is switched to %q on %s.", s.Word, humanize.Count(len(s.Nodes), "node")))
	case s.Word != "":
		write(&out, "", fmt.Sprintf("Batch work is switched to %q on %s; this is in force as a whole on %d.", s.Word, humanize.Count(len(s.Nodes), "node"), s.InForce))
	}
	asked(&out, &s.Asked)
	_, err := io.WriteString(w, out.String())
	return err
}

// setting is what the switch of a node is set to.
func setting(o *fleet.Outcome) string {
	text := o.Switch
	if o.Evict {
		text += ", evicts"
	}
	if !o.EndsAt.IsZero() {
		text += " until " + o.EndsAt.Local().Format("2006-01-02 15:04")
	}
	return text
}

func result(o *fleet.Outcome) string {
	switch {
	case o.Preview != "":
		return "preview, which changes nothing: " + o.Preview
	case len(o.Lacks) > 0:
		return "not in force: " + strings.Join(o.Lacks, "; ")
	}
	return "in force"
}
