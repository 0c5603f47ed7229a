package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim/tune"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Tune writes the result of a search for a better configuration: the tables as comments, and then
// the part of the configuration, so that the whole is a file that 'sluice check' reads.
func Tune(w io.Writer, name string, t *tune.Tuning) error {
	var b strings.Builder
	pools := "overlap"
	if t.Mode == config.Exclusive {
		pools = "have CPUs of their own"
	}
	fmt.Fprintf(&b, "%s, with pools that %s.\nServices may be late %s of their time.\n\n", terminal.Printable(name), pools, percentTo(t.LateLimit, 3))
	rows := [][]string{{"CANDIDATE", "PIECES", "BATCH", "BUSY", "LATE", "CPUS/H", "MOVES/H", "VERDICT"}}
	for i := range t.Candidates {
		c := &t.Candidates[i]
		rows = append(rows, append(append([]string{settings(c.Settings), fmt.Sprint(c.Pieces)}, outcome(&c.Outcome)...), string(c.Verdict)))
	}
	terminal.Table(&b, "", terminal.Unlimited, rows)
	b.WriteString(`
PIECES   of the load that it ran    BATCH    CPUs of batch work done
BUSY     CPU time of the node's     LATE     services over their SLO
CPUS/H   CPUs that pools gained, an hour
MOVES/H  containers given other CPUs, an hour
`)
	if t.Before != nil {
		fmt.Fprintf(&b, "\nTested on %s that the search has not seen:\n\n", humanize.Count(t.Before.Pieces, "piece"))
		rows := [][]string{
			{"", "BATCH", "BUSY", "LATE", "CPUS/H", "MOVES/H"},
			append([]string{"present"}, outcome(t.Before)...),
			append([]string{settings(t.Settings)}, outcome(t.After)...),
		}
		terminal.Table(&b, "", terminal.Unlimited, rows)
	}
	verdict := "No change: "
	if t.Accepted {
		verdict = "Change: "
	}
	b.WriteString("\n" + verdict + t.Why + ".\n")
	var out strings.Builder
	for line := range strings.Lines(b.String()) {
		out.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
	}
	out.WriteString(t.Config)
	return flush(w, &out)
}

func settings(all []tune.Setting) string {
	if len(all) == 0 {
		return "present"
	}
	parts := make([]string, len(all))
	for i, s := range all {
		parts[i] = s.Key + " " + s.To
	}
	return strings.Join(parts, ", ")
}

func outcome(o *tune.Outcome) []string {
	return []string{
		fmt.Sprintf("%.2f", o.BatchCPUs), percentTo(o.UtilizationFraction, 1), percentTo(o.LateFraction, 3),
		fmt.Sprintf("%.1f", o.CPUMovesPerHour), fmt.Sprintf("%.1f", o.MovesPerHour),
	}
}
