package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/sim"
)

// SimMarkdownHead writes the head of a Markdown table with a row for each scenario and a column
// for each policy.
func SimMarkdownHead(w io.Writer, policies []sim.Policy) error {
	var b strings.Builder
	b.WriteString("| scenario |")
	for _, p := range policies {
		fmt.Fprintf(&b, " %s |", p)
	}
	b.WriteString(" squeezes expected | notices kept |\n|" + strings.Repeat("---|", len(policies)+3) + "\n")
	return flush(w, &b)
}

// SimMarkdownRow writes the row of a scenario. Each cell has the node's utilization in percent, batch
// work done in CPUs and in percent of the node, and how often services were late in percent, with the
// number of killed containers if there are any.
func SimMarkdownRow(w io.Writer, c sim.Comparison) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| `%s` |", c.Scenario)
	expected, kept := "–", "–"
	for _, r := range c.Results {
		fmt.Fprintf(&b, " %.1f / %.1f / %.0f / %.2f", 100*r.UtilizationFraction, r.BatchCPUs, 100*r.BatchFraction(), 100*r.LateFraction)
		if r.Kills() > 0 {
			fmt.Fprintf(&b, " (%d killed)", r.Kills())
		}
		b.WriteString(" |")
		if r.Policy == sim.Forecast && r.Squeezes > 0 {
			expected = fmt.Sprintf("%d of %d", r.ExpectedSqueezes, r.Squeezes)
		}
		if r.Notices.Given > 0 {
			kept = fmt.Sprintf("%d of %d", r.Notices.Kept, r.Notices.Given)
		}
	}
	fmt.Fprintf(&b, " %s | %s |\n", expected, kept)
	return flush(w, &b)
}

// SimMarkdownGains writes, as a table, what the policies with exclusive pools of Sluice gain against
// each other policy, over all scenarios. With equal, it leaves out those in which either policy is
// late more often than the scenario's budget.
func SimMarkdownGains(w io.Writer, all []sim.Comparison, equal bool) error {
	var b strings.Builder
	b.WriteString("\n| gain of | against | scenarios | utilization: mean, worst | batch work: mean, worst |\n|---|---|---|---|---|\n")
	for _, p := range []sim.Policy{sim.Pools, sim.Forecast} {
		for _, other := range sim.Policies() {
			if p == other {
				continue
			}
			var busy, batch gain
			for _, c := range all {
				a, o := c.Of(p), c.Of(other)
				if a == nil || o == nil || equal && max(a.LateFraction, o.LateFraction) > c.Budget {
					continue
				}
				busy.add(c.Scenario, 100*(a.UtilizationFraction-o.UtilizationFraction))
				batch.add(c.Scenario, 100*(a.BatchFraction()-o.BatchFraction()))
			}
			if busy.n > 0 {
				fmt.Fprintf(&b, "| %s | %s | %d | %s | %s |\n", p, other, busy.n, busy.text(), batch.text())
			}
		}
	}
	return flush(w, &b)
}

// gain is a difference in points of the node, over several scenarios.
type gain struct {
	n          int
	sum, worst float64
	worstOf    string
}

func (g *gain) add(scenario string, points float64) {
	if g.n == 0 || points < g.worst {
		g.worst, g.worstOf = points, scenario
	}
	g.n++
	g.sum += points
}

func (g *gain) text() string {
	return fmt.Sprintf("%+.1f, %+.1f (`%s`)", g.sum/float64(g.n), g.worst, g.worstOf)
}
