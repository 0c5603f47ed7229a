package fleetview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// maxAdvice is how many pieces of advice a table lists.
const maxAdvice = 20

// stranded writes what is free, and what of that no pod can buy. It writes nothing if no node reports.
func stranded(out *strings.Builder, s *fleet.Summary, nodes bool) {
	rows := [][]string{{"GROUP", "FREE", "CPUS STRANDED", "MEMORY STRANDED"}}
	if nodes {
		rows[0][0] = "NODE"
		for i := range s.Nodes {
			if n := &s.Nodes[i]; n.Free != nil {
				rows = append(rows, []string{n.Name, amount(*n.Free), humanize.AlignedCPUs(n.Stranded.MilliCPU), humanize.ShortBytes(n.Stranded.MemoryBytes)})
			}
		}
	} else {
		for _, g := range append(slices.Clone(s.Groups), s.Total) {
			if g.Reporting > 0 {
				rows = append(rows, []string{g.Name, amount(g.Free), humanize.AlignedCPUs(g.Stranded.MilliCPU), humanize.ShortBytes(g.Stranded.MemoryBytes)})
			}
		}
	}
	if len(rows) == 1 {
		return
	}
	fmt.Fprintf(out, "\nFree now (CPUs/memory), and stranded for pods with %s for each CPU\n", humanize.Bytes(s.MemoryPerCPUBytes))
	terminal.Table(out, "  ", terminal.Columns, alignRight(rows))
}

// benefit writes what batch work got and cost, and what the nodes advise.
func benefit(out *strings.Builder, b *fleet.Benefit) {
	rows := [][]string{{"GROUP", "ANSWERED", "CPU-HOURS", "GIB-HOURS", "SQUEEZES", "EVICTED"}}
	for _, g := range b.Groups {
		rows = append(rows, []string{
			g.Name, strconv.Itoa(g.Answered), strconv.FormatFloat(g.CPUHours, 'f', 1, 64), strconv.FormatFloat(g.GiBHours, 'f', 1, 64), strconv.Itoa(g.Squeezes), strconv.Itoa(g.Evicted),
		})
	}
	out.WriteString("\nBatch work in the last 24 hours, and what it cost\n")
	terminal.Table(out, "  ", terminal.Columns, alignRight(rows))
	rows = [][]string{{"NODE", "OBJECT", "ADVICE"}}
	for _, a := range b.Advice[:min(len(b.Advice), maxAdvice)] {
		rows = append(rows, []string{a.Node, a.Object, a.Text})
	}
	table(out, rows)
	if more := len(b.Advice) - maxAdvice; more > 0 {
		write(out, "", fmt.Sprintf("%s more: -o json has all of them.", humanize.Count(more, "piece of advice")))
	}
	asked(out, &b.Asked)
}
