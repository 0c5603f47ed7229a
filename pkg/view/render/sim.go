package render

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Sim writes the results of policies side by side. With equal, the policies ran at an equal
// rate of violations, and Sim adds what the pools gain.
func Sim(w io.Writer, name string, s *sim.Scenario, results []*sim.Result, equal bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d CPUs, %s, seed %d\n", name, results[0].Series.NodeCPUs, s.Duration, s.Seed)
	if equal {
		fmt.Fprintf(&b, "Each as full as it can be with services late at most %s of the time.\n", percentTo(float64(s.Budget), 2))
	}
	b.WriteString("\n")
	rows := [][]string{{"POLICY", "LOAD", "TIGHT", "BUSY", "LATE", "BATCH", "CPUS/H", "MOVES/H", "EVICTED", "OOM", "SQUEEZED", "EXPECTED", "THROTTLED"}}
	for _, r := range results {
		rows = append(rows, []string{
			string(r.Policy), percentTo(r.LoadRatio, 0), percentTo(r.TightRatio, 0), percentTo(r.UtilizationFraction, 1), percentTo(r.LateFraction, 2),
			fmt.Sprintf("%.1f (%s)", r.BatchCPUs, percentTo(r.BatchFraction(), 0)), fmt.Sprintf("%.1f", r.CPUMovesPerHour), fmt.Sprintf("%.1f", r.MovesPerHour),
			fmt.Sprint(r.Evictions), fmt.Sprint(r.OOMKills), fmt.Sprint(r.Squeezes), fmt.Sprint(r.ExpectedSqueezes), percentTo(r.ThrottledFraction, 2),
		})
	}
	terminal.Table(&b, "", terminal.Unlimited, rows)
	b.WriteString(`
LOAD     of the pods that vary     TIGHT    factor of how full the policy fills
BUSY     CPU time of the node's    LATE     services over their SLO
BATCH    CPUs of batch work done   EVICTED, OOM   containers killed
CPUS/H   CPUs that pools gained, an hour
MOVES/H  containers given other CPUs, an hour
SQUEEZED times that services took CPU from batch work
EXPECTED squeezes by a load that was forecast
`)
	if equal {
		b.WriteString(gains(results, float64(s.Budget)))
	}
	return flush(w, &b)
}

// gains says what the pools gain against each other policy.
func gains(results []*sim.Result, budget float64) string {
	at := slices.IndexFunc(results, func(r *sim.Result) bool { return r.Policy == sim.Pools })
	if at < 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n")
	for i, r := range results {
		if i == at {
			continue
		}
		fmt.Fprintf(&b, "Pools against %s: %+.1f points of utilization", r.Policy, 100*(results[at].UtilizationFraction-r.UtilizationFraction))
		if r.LateFraction > budget {
			fmt.Fprintf(&b, ", though %s is late %s of the time even at its emptiest", r.Policy, percentTo(r.LateFraction, 2))
		}
		b.WriteString(".\n")
	}
	if v := results[at].LateFraction; v > budget {
		fmt.Fprintf(&b, "The pools are late %s of the time even at their emptiest: the rates are not equal.\n", percentTo(v, 2))
	}
	return b.String()
}

func percentTo(share float64, digits int) string {
	return fmt.Sprintf("%.*f %%", digits, 100*share)
}

// Scenarios writes the names of the scenarios, with their descriptions.
func Scenarios(w io.Writer, names []string, all []*sim.Scenario) error {
	var out strings.Builder
	rows := make([][]string, len(names))
	for i, name := range names {
		rows[i] = []string{name, all[i].About}
	}
	terminal.Table(&out, "", terminal.Columns, rows)
	return flush(w, &out)
}
