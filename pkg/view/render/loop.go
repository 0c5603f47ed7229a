package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// These constants limit what the narrow status shows of the control loop.
const (
	decisionsShown = 3
	adviceShown    = 5
)

// loopSection describes the control loop for people; it writes nothing if there is none.
func loopSection(out *strings.Builder, s *status.Status, wide bool) {
	l := s.Loop
	if l == nil {
		return
	}
	width, decisions, advices := terminal.Columns, decisionsShown, adviceShown
	if wide {
		width, decisions, advices = terminal.Unlimited, len(l.Decisions), len(l.Advice)
	}
	out.WriteString("\nLOOP\n")
	terminal.Table(out, "", width, loopRows(l, &s.Config))
	if rows := loads(s); len(rows) > 1 {
		out.WriteString("\n")
		terminal.Table(out, "", width, rows)
	}
	if rows, more := forecastRows(l.Forecasts, advices); len(rows) > 1 {
		out.WriteString("\n")
		terminal.Table(out, "", width, rows)
		if more > 0 {
			fmt.Fprintf(out, "and %s that request far more: sluice status -o wide\n", humanize.Count(more, "workload"))
		}
	}
	if last := l.Decisions[max(0, len(l.Decisions)-decisions):]; len(last) > 0 {
		out.WriteString("\nDECIDED LAST ('sluice log --why' tells more)\n")
		decisionsText(out, last)
	}
	if len(l.Advice) == 0 {
		return
	}
	out.WriteString("\n")
	rows := [][]string{{"ADVICE FOR", "WHAT"}}
	for _, a := range l.Advice[:min(advices, len(l.Advice))] {
		rows = append(rows, []string{a.Object, a.Text})
	}
	terminal.Table(out, "", width, rows)
	if more := len(l.Advice) - advices; more > 0 {
		fmt.Fprintf(out, "and %d more: sluice status -o wide\n", more)
	}
}

// loopRows summarizes the control loop.
func loopRows(l *status.Loop, c *status.Config) [][]string {
	rows := [][]string{{"mode", loopMode(l)}}
	if l.Problem != "" {
		rows = append(rows, []string{"problem", l.Problem})
	}
	if l.MeasuredAt.IsZero() {
		return append(rows, []string{"node", "not looked at yet"})
	}
	rows = append(rows,
		[]string{"node", nodeText(&l.Node)},
		[]string{"batch", batchState(&l.Batch)},
		[]string{"budget", budgetText(&l.Batch)},
	)
	if part := fromPart(c, "control.windows"); part != "" {
		rows = append(rows, []string{"windows", part})
	}
	if b := &l.Batch; b.ThresholdWhy != "" {
		text := fmt.Sprintf("all together may use %d%% of the node; %s", b.ThresholdPercent, b.ThresholdWhy)
		if part := fromPart(c, "control.batch.thresholdPercent"); part != "" {
			text = fmt.Sprintf("all together may use %d%% of the node, %s; %s", b.ThresholdPercent, part, b.ThresholdWhy)
		}
		rows = append(rows, []string{"threshold", text})
	}
	if n := &l.Notices; n.Active != nil || n.Counts.Given > 0 {
		rows = append(rows, []string{"notice", noticeText(n)})
	}
	if m := &l.Memory; m.GoalBytes > 0 || m.UsedBytes > 0 {
		text := fmt.Sprintf("%s held by batch of at most %s; others %s and %s headroom", humanize.Bytes(m.UsedBytes), humanize.Bytes(m.GoalBytes), humanize.Bytes(m.OnlineBytes), humanize.Bytes(m.HeadroomBytes))
		if m.LimitBytes > 0 {
			text += "; limit " + humanize.Bytes(m.LimitBytes)
		}
		if m.SwapBytes > 0 {
			text += "; " + humanize.Bytes(m.SwapBytes) + " in swap"
		}
		rows = append(rows, []string{"memory", text})
	}
	if l.Egress != nil {
		rows = append(rows, []string{"egress", egressText(l.Egress)})
	}
	if r := l.Refusal; r != nil {
		rows = append(rows, []string{"refused", refusalText(r)})
	}
	if e := &l.Evictions; e.Evicted+e.Failed+e.Refused+e.Reported > 0 || e.Problem != "" {
		rows = append(rows, []string{"evictions", evictionsText(e)})
	}
	rows = append(rows, []string{"offer", offerText(&l.Offer)})
	for i := range l.HostApplications {
		rows = append(rows, []string{"host", hostText(&l.HostApplications[i])})
	}
	if d := &l.Benefit.Day; d.KnownHours > 0 {
		rows = append(rows, []string{"benefit", fmt.Sprintf("%.1f CPU hours and %.1f GiB hours for batch in the last day, node at %s, %s of what batch asked for granted",
			d.CPUHours, d.GiBHours, humanize.Percent(d.UtilizationFraction), humanize.Percent(l.Benefit.SatisfactionFraction))})
	}
	if suffer := sufferers(l.Disturbed); len(suffer) > 0 {
		rows = append(rows, []string{"disturbed", strings.Join(suffer, ", ") + ": 'sluice explain' tells by whom"})
	}
	if l.DroppedAuditEntries > 0 {
		rows = append(rows, []string{"audit", humanize.Count(l.DroppedAuditEntries, "decision") + " could not be written to the trail"})
	}
	for i := range l.Controllers {
		if c := &l.Controllers[i]; c.Note != "" {
			rows = append(rows, []string{c.Name, c.Note})
		}
	}
	for _, f := range l.Failures {
		rows = append(rows, []string{"unread", fmt.Sprintf("%s, %d times", f.What, f.Count)})
	}
	return rows
}

// loopMode returns the mode of the control loop, and the controllers with a different mode.
func loopMode(l *status.Loop) string {
	text := string(l.Mode)
	if l.Mode == control.Preview {
		text += ": it decides and reports, and changes nothing"
	}
	var others []string
	for _, c := range l.Controllers {
		if c.Mode != l.Mode && c.Mode != control.Off {
			others = append(others, c.Name+" "+string(c.Mode))
		}
	}
	if len(others) > 0 {
		text += "; but " + strings.Join(others, ", ")
	}
	return text
}

func nodeText(n *status.NodeUsage) string {
	if n.CPU.MeasuredAt.IsZero() {
		return "usage not known yet"
	}
	text := fmt.Sprintf("%s of %s CPUs busy", humanize.CPUs(n.CPU.Usage), humanize.CPUs(n.CPU.Limit))
	if !n.Memory.MeasuredAt.IsZero() {
		text += fmt.Sprintf(", %s of %s memory available", humanize.Bytes(n.Memory.AvailableBytes), humanize.Bytes(n.Memory.TotalBytes))
	}
	if p := &n.Pressure; !p.MeasuredAt.IsZero() {
		text += fmt.Sprintf(", pressure: CPU %s, memory %s, I/O %s", humanize.Percent(p.CPUFraction), humanize.Percent(p.MemoryFraction), humanize.Percent(p.IOFraction))
	}
	return text
}

// noticeText describes the notice that holds, and what became of those by forecasts.
func noticeText(n *status.Notices) string {
	var parts []string
	if n.Active != nil {
		parts = append(parts, activeNotice(n.Active))
	}
	if c := &n.Counts; c.Given > 0 {
		parts = append(parts, fmt.Sprintf("%s by forecasts given, %d kept, %d false", humanize.Count(c.Given, "notice"), c.Kept, c.False))
	}
	return strings.Join(parts, "; ")
}

func activeNotice(n *control.Notice) string {
	return fmt.Sprintf("%s from %s to %s: %s", n.Kind, moment(n.BeginsAt), moment(n.EndsAt), n.Why)
}

func refusalText(r *status.Refusal) string {
	var who []string
	if r.NewBatch {
		who = append(who, "new batch work")
	}
	if len(r.PodUIDs) > 0 {
		who = append(who, humanize.Count(len(r.PodUIDs), "evicted pod"))
	}
	text := strings.Join(who, ", ")
	if !r.EndsAt.IsZero() {
		text += " until " + moment(r.EndsAt)
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}

func offerText(o *control.Offer) string {
	if !o.Known {
		return "not known: " + cmp.Or(o.Why, "the node was not seen for long enough")
	}
	text := fmt.Sprintf("%s CPUs and %s for long, %s CPUs and %s for short", humanize.CPUs(o.LongTerm.CPU), humanize.Bytes(o.LongTerm.MemoryBytes), humanize.CPUs(o.ShortTerm.CPU), humanize.Bytes(o.ShortTerm.MemoryBytes))
	if o.Why != "" {
		text += ": " + o.Why
	}
	return text
}

func hostText(a *status.HostApplication) string {
	if a.Problem != "" {
		return a.Name + " (" + a.Cgroup + ") is not managed: " + a.Problem
	}
	bound := ""
	if a.Quota > 0 {
		bound = fmt.Sprintf("of at most %s ", humanize.CPUs(a.Quota))
	}
	text := fmt.Sprintf("%s uses %s %sCPUs and %s, and is offered %s CPUs and %s", a.Name,
		humanize.CPUs(a.Used.CPU), bound, humanize.Bytes(a.Used.MemoryBytes), humanize.CPUs(a.Offer.CPU), humanize.Bytes(a.Offer.MemoryBytes))
	if a.FileProblem != "" {
		text += "; its file was not written: " + a.FileProblem
	}
	return text
}

// sufferers lists the pods that batch work delays.
func sufferers(all []control.Disturbance) []string {
	var names []string
	for i := range all {
		if len(all[i].Suspects) > 0 {
			names = append(names, all[i].Ref)
		}
	}
	return names
}

// forecastRows lists the expected peaks, and how well the one of the latest hour was met. It leaves
// out workloads after the first ones, and returns their number.
func forecastRows(all []control.PeakForecast, workloads int) (rows [][]string, more int) {
	rows = [][]string{{"EXPECTED PEAK OF", "IN 10 MIN", "IN A DAY", "BY", "KEPT", "LAST HOUR", "NOTE"}}
	for i := range all {
		f := &all[i]
		if f.Day == (control.Amount{}) {
			continue
		}
		if f.Requested.CPU > 0 {
			if workloads--; workloads < 0 {
				more++
				continue
			}
		}
		kept, last, note := "-", "-", ""
		if f.ConfidenceFraction > 0 {
			kept = humanize.Percent(f.ConfidenceFraction)
		}
		if f.LastHourForecast != (control.Amount{}) {
			last = fmt.Sprintf("%s, was %s", peakText(f, f.LastHourForecast), peakText(f, f.LastHourPeak))
		}
		switch {
		case !f.Trusted:
			note = "not trusted yet"
		case f.Requested.CPU > 0:
			note = "requests " + humanize.CPUs(f.Requested.CPU) + " CPUs"
		}
		rows = append(rows, []string{f.Object, peakText(f, f.Soon), peakText(f, f.Day), string(f.Method), kept, last, note})
	}
	return rows, more
}

func peakText(f *control.PeakForecast, amount control.Amount) string {
	if f.Resource == control.PeakOfMemory {
		return humanize.Bytes(amount.MemoryBytes)
	}
	return humanize.CPUs(amount.CPU) + " CPUs"
}

// loads lists each pool's load with a bar, in percent of its CPUs, and its CPUs in percent of
// what its containers request (the requested-CPU fraction, RCF).
func loads(s *status.Status) [][]string {
	rows := [][]string{{"LOAD OF", "USED", "CPUS", "LOAD", "", "BAND", "RCF", "NOTE"}}
	for i := range s.Pools {
		p := &s.Pools[i]
		l := p.Load
		if l == nil {
			continue
		}
		load, bar := "unknown", ""
		if !l.MeasuredAt.IsZero() {
			load, bar = humanize.Percent(l.LoadFraction), meter(l.LoadFraction)
		}
		band := "-"
		if l.BandHighPercent > 0 {
			band = fmt.Sprintf("%d-%d%%", l.BandLowPercent, l.BandHighPercent)
		}
		rcf := "-"
		if p.RCFRatio > 0 {
			rcf = humanize.Percent(p.RCFRatio)
		}
		note := loadNote(p)
		if name := s.Config.PartOf("pools.list"); name != "" && l.BandHighPercent > 0 {
			note = strings.TrimPrefix(note+", band by part "+name, ", ")
		}
		rows = append(rows, []string{p.Name, humanize.CPUs(l.Usage), fmt.Sprint(l.SizeCPUs), load, bar, band, rcf, note})
	}
	return rows
}

func loadNote(p *status.Pool) string {
	l := p.Load
	var notes []string
	if n := p.Spare.Size(); n > 0 {
		notes = append(notes, "lends "+humanize.Count(n, "CPU"))
	}
	if l.WantedCPUs > 0 && l.WantedCPUs != l.SizeCPUs {
		notes = append(notes, "wants "+humanize.Count(l.WantedCPUs, "CPU"))
	}
	if l.ShortCPUs > 0 {
		notes = append(notes, "lacks "+humanize.Count(l.ShortCPUs, "CPU"))
	}
	if l.Small {
		notes = append(notes, "too small for its band")
	}
	return strings.Join(notes, ", ")
}

// meter draws a share as a bar.
func meter(share float64) string {
	const length = 10
	full := int(min(max(share, 0), 1)*length + 0.5)
	return strings.Repeat("#", full) + strings.Repeat(".", length-full)
}

// decisionsText lists decisions in the format of `sluice log`.
func decisionsText(out *strings.Builder, all []status.Decision) {
	for i := range all {
		entry := audit.Entry(all[i])
		out.WriteString(decisionText(&entry, false))
	}
}

// podDecisions merges the decisions about a pod from the status and the audit trail, the oldest
// first.
func podDecisions(pod string, known []status.Decision, trail []audit.Entry) []status.Decision {
	var all []status.Decision
	for i := range known {
		if (audit.Filter{Object: pod}).Takes((*audit.Entry)(&known[i])) {
			all = append(all, known[i])
		}
	}
	for _, e := range trail {
		all = append(all, status.Decision(e))
	}
	order := func(a, b status.Decision) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Action, b.Action))
	}
	slices.SortStableFunc(all, order)
	return slices.CompactFunc(all, func(a, b status.Decision) bool { return order(a, b) == 0 })
}

// usageRows describes a container's usage beside its requests and limits.
func usageRows(c *status.Container) [][]string {
	u := c.Usage
	if u == nil {
		return nil
	}
	var rows [][]string
	if cpu := &u.CPU; !cpu.MeasuredAt.IsZero() {
		text := fmt.Sprintf("%s CPUs used, %s requested, limit %s", humanize.CPUs(cpu.Usage), c.Requested, orNone(cpu.Limit > 0, cpu.Limit.String()))
		if cpu.LoopLimit > 0 {
			text += ", of the loop " + cpu.LoopLimit.String()
		}
		if cpu.ThrottledFraction > 0 {
			text += fmt.Sprintf("; throttled in %s of periods", humanize.Percent(cpu.ThrottledFraction))
		}
		rows = append(rows, []string{"CPU now", text})
	}
	if m := &u.Memory; !m.MeasuredAt.IsZero() {
		text := fmt.Sprintf("%s used (%s with cache), %s requested, limit %s", humanize.Bytes(m.WorkingSetBytes), humanize.Bytes(m.CurrentBytes), orNone(m.RequestedBytes > 0, humanize.Bytes(m.RequestedBytes)), orNone(m.LimitBytes > 0, humanize.Bytes(m.LimitBytes)))
		if m.OOMKills > 0 {
			text += "; " + humanize.Count(m.OOMKills, "OOM kill")
		}
		rows = append(rows, []string{"memory now", text})
	}
	if p := &u.Pressure; !p.MeasuredAt.IsZero() {
		rows = append(rows, []string{"waiting", fmt.Sprintf("%s of time for a CPU, %s for memory, %s for I/O", humanize.Percent(p.CPUFraction), humanize.Percent(p.MemoryFraction), humanize.Percent(p.IOFraction))})
	}
	return rows
}

func orNone(there bool, text string) string {
	if there {
		return text
	}
	return "none"
}

func evictionsText(e *status.Evictions) string {
	text := fmt.Sprintf("%d done, %d failed, %d only reported (by %s)", e.Evicted, e.Failed, e.Reported, e.By)
	if e.Refused > 0 {
		text += fmt.Sprintf(", %d forbidden by the cluster for the moment", e.Refused)
	}
	if e.Problem != "" {
		text += "; none can be carried out now: " + e.Problem
	}
	return text
}
