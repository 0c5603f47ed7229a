// Package fleetview shows what the nodes of a cluster could sell, as tables.
package fleetview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Summary writes the groups, or each node if nodes is set, and why nodes do not sell.
func Summary(w io.Writer, s *fleet.Summary, nodes bool, now time.Time) error {
	var out strings.Builder
	for i, unit := range units(s) {
		if i > 0 {
			out.WriteByte('\n')
		}
		rows := groupRows(s, unit)
		if nodes {
			rows = nodeRows(s, unit)
		}
		fmt.Fprintf(&out, "%s\n", unit.title)
		terminal.Table(&out, "  ", terminal.Columns, alignRight(rows))
	}
	stranded(&out, s, nodes)
	out.WriteString("\nNOW and FOR LONG: what could be sold, whether it is sold or not. BOUND: batch\n" +
		"resources that pods already request. Amounts are those of the nodes that report.\n")
	rows := stateRows(s)
	if nodes {
		rows = whyRows(s, now)
	}
	if len(rows) > 1 {
		out.WriteString("\nNodes that do not sell\n")
		terminal.Table(&out, "  ", terminal.Columns, rows)
	}
	if s.Benefit != nil {
		benefit(&out, s.Benefit)
	}
	write(&out, "Next: ", s.Next)
	_, err := io.WriteString(w, out.String())
	return err
}

// unit is how a table shows one part of the amounts.
type unit struct {
	title string
	text  func(nodereport.Amount) string
}

// units are those of a summary: a thousand CPUs and more need no tenths, which would take the table's room.
func units(s *fleet.Summary) []unit {
	const thousand = 1000 * 1000
	cpus := func(a nodereport.Amount) string { return humanize.AlignedCPUs(a.MilliCPU) }
	if s.Total.Capacity.MilliCPU >= thousand {
		cpus = func(a nodereport.Amount) string { return strconv.FormatInt((a.MilliCPU+500)/1000, 10) }
	}
	return []unit{
		{"CPU, in CPUs", cpus},
		{"Memory", func(a nodereport.Amount) string { return humanize.ShortBytes(a.MemoryBytes) }},
	}
}

// heads are the titles of the columns of amounts.
func heads() []string {
	return []string{"CAPACITY", "REQUESTED", "USED", "NOW", "FOR LONG", "BOUND"}
}

func groupRows(s *fleet.Summary, u unit) [][]string {
	title := "GROUP"
	if s.By != "" {
		title = strings.ToUpper(s.By[strings.LastIndexByte(s.By, '/')+1:])
	}
	rows := [][]string{append([]string{title, "NODES", "REPORT"}, heads()...)}
	for _, g := range append(slices.Clone(s.Groups), s.Total) {
		row := []string{g.Name, strconv.Itoa(g.Nodes), strconv.Itoa(g.Reporting)}
		if g.Reporting == 0 {
			row = append(row, "-", "-", "-", "-", "-", "-")
		} else {
			row = append(row, u.text(g.Capacity), u.text(g.Requested), u.text(g.Used), u.text(g.Sellable.ShortTerm), u.text(g.Sellable.LongTerm), u.text(bound(g.Bound)))
		}
		rows = append(rows, row)
	}
	return rows
}

// bound is what pods have of both offers.
func bound(o nodereport.Offers) nodereport.Amount {
	return nodereport.Amount{MilliCPU: o.ShortTerm.MilliCPU + o.LongTerm.MilliCPU, MemoryBytes: o.ShortTerm.MemoryBytes + o.LongTerm.MemoryBytes}
}

func nodeRows(s *fleet.Summary, u unit) [][]string {
	rows := [][]string{append([]string{"NODE"}, heads()...)}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		row := []string{n.Name, u.text(n.Capacity), "-", "-", "-", "-", "-"}
		if r := n.Report; r != nil {
			row[2], row[6] = u.text(r.Requested), u.text(bound(r.Bound))
			if r.Used != nil {
				row[3] = u.text(*r.Used)
			}
			if r.Sellable != nil {
				row[4], row[5] = u.text(r.Sellable.ShortTerm), u.text(r.Sellable.LongTerm)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// stateRows has a row for each state in which a node does not sell, with the reason of the first
// node.
func stateRows(s *fleet.Summary) [][]string {
	rows := [][]string{{"STATE", "NODES", "WHY"}}
	count := map[string]int{}
	for i := range s.Nodes {
		count[s.Nodes[i].State]++
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.State == fleet.Selling || count[n.State] == 0 {
			continue
		}
		why := n.Name + ": " + n.Why
		rows = append(rows, []string{n.State, strconv.Itoa(count[n.State]), why})
		count[n.State] = 0
	}
	return rows
}

func whyRows(s *fleet.Summary, now time.Time) [][]string {
	rows := [][]string{{"NODE", "STATE", "FOR", "WHY"}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.State == fleet.Selling {
			continue
		}
		since := "-"
		if !n.Since.IsZero() {
			since = humanize.Lasting(max(0, now.Sub(n.Since)))
		}
		rows = append(rows, []string{n.Name, n.State, since, cmp.Or(n.Why, "-")})
	}
	return rows
}

// alignRight pads all columns but the first on their left.
func alignRight(rows [][]string) [][]string { return alignRightFrom(1, rows) }

// alignRightFrom pads a column and all behind it on their left.
func alignRightFrom(first int, rows [][]string) [][]string {
	for column := first; column < len(rows[0]); column++ {
		width := 0
		for _, row := range rows {
			width = max(width, utf8.RuneCountInString(row[column]))
		}
		for _, row := range rows {
			row[column] = strings.Repeat(" ", width-utf8.RuneCountInString(row[column])) + row[column]
		}
	}
	return rows
}
