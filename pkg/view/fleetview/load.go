package fleetview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// maxListed is how many names a sentence lists.
const maxListed = 10

// Load writes what the nodes do now, 80 columns wide.
func Load(w io.Writer, l *fleet.Load) error {
	var out strings.Builder
	rows := [][]string{{"NODE", "STATE", "CPU", "MEM", "OFFER", "SOLD", "BATCH", "SQZ", "EVICT", "DIST"}}
	for _, n := range append(slices.Clone(l.Nodes), l.Total) {
		rows = append(rows, []string{
			n.Node, cmp.Or(n.State, "-"),
			percent(n.Used.MilliCPU, n.Capacity.MilliCPU), percent(n.Used.MemoryBytes, n.Capacity.MemoryBytes),
			amount(n.Offer), amount(n.Sold), amount(n.BatchUsed),
			strconv.Itoa(n.Squeezes), strconv.Itoa(n.Evicted), strconv.Itoa(len(n.Disturbed)),
		})
	}
	terminal.Table(&out, "", terminal.Columns, alignRightFrom(2, rows))
	write(&out, "", "OFFER, SOLD and BATCH are CPUs/memory: what the node offers, what batch pods request, and what they use. "+
		"SQZ and EVICT count the last 24 hours: intervals in which batch work got less CPU, and pods that Sluice evicted. "+
		"DIST is the number of services that batch work disturbs now.")
	rows = [][]string{{"NODE", "DISTURBED SERVICES"}}
	for i := range l.Nodes {
		if n := &l.Nodes[i]; len(n.Disturbed) > 0 {
			rows = append(rows, []string{n.Node, list(n.Disturbed)})
		}
	}
	table(&out, rows)
	asked(&out, &l.Asked)
	_, err := io.WriteString(w, out.String())
	return err
}

// asked writes which nodes gave no answer, those of one reason together.
func asked(out *strings.Builder, a *fleet.Asked) {
	nodes := map[string][]string{}
	for _, f := range a.Failed {
		nodes[f.Why] = append(nodes[f.Why], f.Node)
	}
	rows := [][]string{{"NODES", "NO ANSWER"}}
	for _, f := range a.Failed {
		if names := nodes[f.Why]; names[0] == f.Node {
			rows = append(rows, []string{list(names), f.Why})
		}
	}
	table(out, rows)
	if n := len(a.Without); n > 0 {
		write(out, "", fmt.Sprintf("Not asked: %s without a pod of Sluice: %s.", humanize.Count(n, "node"), list(a.Without)))
	}
}

// table writes rows with a title, and an empty line before them. It writes nothing if there are none.
func table(out *strings.Builder, rows [][]string) {
	if len(rows) > 1 {
		out.WriteByte('\n')
		terminal.Table(out, "", terminal.Columns, rows)
	}
}

// write writes an empty line, and a text behind its title, in lines that fit.
func write(out *strings.Builder, title, text string) {
	out.WriteByte('\n')
	for _, line := range terminal.Fold(terminal.Printable(text), terminal.Columns-len(title)) {
		out.WriteString(title + line + "\n")
		title = strings.Repeat(" ", len(title))
	}
}

// list names the first of many.
func list(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

func amount(a nodereport.Amount) string {
	return humanize.AlignedCPUs(a.MilliCPU) + "/" + humanize.ShortBytes(a.MemoryBytes)
}

// percent is a part of a whole, "-" if that is not known.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return humanize.Percent(float64(part) / float64(whole))
}
