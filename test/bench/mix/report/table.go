package report

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Table returns the report for people: latencies in ms, fractions in percent, CPU time in CPUs.
func (r *Report) Table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d CPUs, %.0f GiB, Linux %s; %s, requests of %s, slices of %s after %s, %d times; Sluice's config:\n%s\n",
		r.Machine.Model, r.Machine.CPUs, float64(r.Machine.Memory)/(1<<30), r.Machine.Kernel, r.Run.Service, r.Run.Work, r.Run.Slice, r.Run.Settle, r.Run.Repeat, r.Run.Config)
	if len(r.Cells) > 0 {
		pace := r.pace()
		grid(&out, "load|hog|setting|slices|dropped|requests|lost|p50|p99|of slices|p99.9|wait p99|late p99|busy|steal|pace|service|batch|other|of leavings", len(r.Cells), func(i int) []any {
			c := r.Cells[i]
			return []any{
				c.Level, c.Hog, c.Setting, c.Slices, c.Dropped, c.Requests, c.Lost, c.P50, c.P99, c.P99s, c.P999, c.Wait99, c.Late99,
				percent(c.Busy), percent(c.Steal), percent(float64(c.Pace) / pace), c.Service, c.Batch, c.Other, percent(c.BatchOfLeavings),
			}
		})
	}
	r.waits(&out)
	if len(r.Memory) > 0 {
		grid(&out, "memory|batch holds|growths|p50|p99|p99.9|lost|waited for memory|freed p50|p99|not freed|limit met|MiB swapped|evicted|kills|of the service", len(r.Memory), func(i int) []any {
			m := r.Memory[i]
			return []any{
				m.Setting, m.Holds, m.Repetitions, m.P50, m.P99, m.P999, m.Lost, m.Reclaiming,
				m.FreedP50, m.FreedP99, m.NotFreed, m.Failures, m.Swapped >> 20, m.Evicted, m.Kills, m.ServiceKills,
			}
		})
	}
	if len(r.Reactions) > 0 {
		grid(&out, "reaction|steps|no squeeze|p50|p99|largest", len(r.Reactions), func(i int) []any {
			n := r.Reactions[i]
			return []any{n.Setting, n.Steps, n.Missed, n.P50, n.P99, n.Max}
		})
	}
	if len(r.Objectives) > 0 {
		fmt.Fprintf(&out, "The objective is a p99 below %s ms, at a load of %s %% of the node; the second half of %s counts each time.\n", text(r.Objectives[0].Bound), r.Objectives[0].Level, r.Objectives[0].Time)
		grid(&out, "objective|slices|dropped|requests|lost|held|p50|p99|of slices|p99.9|late p99|busy|steal|service|batch|other", len(r.Objectives), func(i int) []any {
			n := r.Objectives[i]
			return []any{
				n.Setting, n.Slices, n.Dropped, n.Requests, n.Lost, percent(n.HeldFraction()), n.P50, n.P99, n.P99s, n.P999, n.Late99,
				percent(n.Busy), percent(n.Steal), n.Service, n.Batch, n.Other,
			}
		})
	}
	for _, m := range r.Mornings {
		fmt.Fprintf(&out, "control.prediction.mode %s: %d jobs started, %d ended, %d evicted (%d after a notice: %v), %d refused; CPU seconds of jobs that ended %.0f, were evicted %.0f, run on %.0f; a job's time %v median, %v longest; %d notices, %d squeezes\n",
			m.Prediction, m.Started, m.Done, m.Evicted, m.Warned, m.Warning, m.Refused, m.DoneCPUSeconds, m.LostCPUSeconds, m.RunningCPUSeconds, m.Median, m.Longest, m.Notices, m.Squeezes)
		grid(&out, "morning|published CPUs|requested|used|evicted|p50|p99", len(m.Phases), func(i int) []any {
			p := m.Phases[i]
			return []any{p.Name, p.Published, p.Requested, p.Used, p.Evicted, p.P50, p.P99}
		})
	}
	for _, g := range r.Goals() {
		verdict := "MISSED "
		if g.Reached {
			verdict = "reached"
		}
		fmt.Fprintf(&out, "%s  %s: %s\n", verdict, g.Of, g.Text)
	}
	return out.String()
}

// waits writes what the service's threads waited for, if it was traced.
func (r *Report) waits(out *strings.Builder) {
	type row struct {
		Cell
		Wait
	}
	var rows []row
	for _, c := range r.Cells {
		for _, w := range c.Waits {
			rows = append(rows, row{c, w})
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintln(out, "What the service's threads waited for, when they could run; ms:")
	grid(out, "load|hog|setting|waits for|per request|longest", len(rows), func(i int) []any {
		n := rows[i]
		return []any{n.Level, n.Hog, n.Setting, n.For, n.PerRequest, n.Longest}
	})
}

// percent is a fraction that is printed in percent.
type percent float64

func grid(out *strings.Builder, header string, rows int, row func(int) []any) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(header, "|", "\t"))
	for i := range rows {
		for _, value := range row(i) {
			fmt.Fprint(t, text(value), "\t")
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // writes to memory
	out.WriteByte('\n')
}

func text(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return fmt.Sprintf("%.2f", float64(v)/float64(time.Millisecond))
	case Spread:
		return text(v.Low) + " " + text(v.Median) + " " + text(v.High)
	case percent:
		return fmt.Sprintf("%.1f", 100*float64(v))
	case float64:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprint(v)
	}
}

// pace returns the median pace of all cells, and 1 if it is not known.
func (r *Report) pace() float64 {
	var all []time.Duration
	for _, c := range r.Cells {
		all = append(all, c.Pace)
	}
	slices.Sort(all)
	return max(1, float64(all[len(all)/2]))
}
