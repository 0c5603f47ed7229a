package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Status writes the plugin's state, 80 columns wide unless wide is set.
func Status(w io.Writer, s *status.Status, wide bool) error {
	width := terminal.Columns
	if wide {
		width = terminal.Unlimited
	}
	var out strings.Builder
	terminal.Table(&out, "", width, overview(s))
	section(&out, width, pools(s), "There are no pools yet.")
	loopSection(&out, s, wide)

	containers := slices.Clone(s.Containers)
	slices.SortStableFunc(containers, func(a, b status.Container) int { return cmp.Compare(a.Ref, b.Ref) })
	pins, shared := [][]string{pinHeader(wide)}, [][]string{sharedHeader(wide)}
	for i := range containers {
		if c := &containers[i]; c.Class.Pinned() {
			pins = append(pins, pinRow(c, wide))
		} else {
			shared = append(shared, sharedRow(c, wide))
		}
	}
	section(&out, width, pins, "No container has CPUs of its own.")
	section(&out, width, shared, "No container shares CPUs.")
	return flush(w, &out)
}

// section writes a table, or the text empty if it has no rows.
func section(out *strings.Builder, width int, rows [][]string, empty string) {
	out.WriteString("\n")
	if len(rows) == 1 {
		out.WriteString(empty + "\n")
		return
	}
	terminal.Table(out, "", width, rows)
}

func overview(s *status.Status) [][]string {
	m := &s.Machine
	rows := [][]string{
		{"version", s.Version},
		{"mode", modeText(s)},
		{"runtime", runtimeText(s)},
		{"record updates", recordUpdatesText(&s.Runtime)},
		{"machine", fmt.Sprintf("%s, %s, %d L3, %s, %s, %s", cpuList(m.Online, "no CPU"), humanize.Count(m.Cores, "core"),
			m.L3s, humanize.Count(m.Nodes, "NUMA node"), humanize.Count(m.Packages, "package"), humanize.Bytes(m.MemoryBytes))},
	}
	if s.Config.Problem != "" {
		rows = append(rows, []string{"config", "the newest file is not in force: " + s.Config.Problem})
	}
	if s.Config.KeepWeights {
		rows = append(rows, []string{"weights", "those of pods stay as they are: the kubelet takes them for requests (Kubernetes 1.37)"})
	}
	rows = append(rows, partRows(&s.Config)...)
	if !m.Offline.IsEmpty() {
		rows = append(rows, []string{"offline", cpuList(m.Offline, "")})
	}
	rows = append(rows,
		[]string{"pinned", cpuList(m.Pinned, "none")},
		[]string{"reserved", cpuList(m.Reserved, "none")},
		[]string{"system", cpuList(m.System, "none: SYSTEM containers share with LS")})
	if sc := &s.Scheduling; sc.Allocatable > 0 {
		rows = append(rows, []string{"overcommit", fmt.Sprintf("%s: %s of %s CPUs requested", humanize.Percent(sc.OvercommitRatio), humanize.CPUs(sc.Requested), humanize.CPUs(sc.Allocatable))})
		if sc.Room != nil {
			rows = append(rows, []string{"room", humanize.CPUs(*sc.Room) + " CPUs can still be requested beside what the pools need"})
		}
	}
	if !m.External.IsEmpty() {
		rows = append(rows, []string{"kubelet's", cpuList(m.External, "") + ", given away by its static CPU manager"})
	}
	if st := &m.Steering; !st.CPUs.IsEmpty() {
		rows = append(rows, []string{"steered", fmt.Sprintf("IRQs or workqueues off %s, %d could not be moved", cpuList(st.CPUs, ""), st.Skipped)})
	}
	for _, n := range s.Neighbours {
		rows = append(rows, []string{"neighbour", fmt.Sprintf("%s: %s. %s. To end this: %s.", n.Kind, n.Evidence, n.Response, n.Fix)})
	}
	if s.Grants.Problem != "" {
		rows = append(rows, []string{"requests", "inferred: " + s.Grants.Problem})
	}
	if n := s.Counters.GrantsCut; n > 0 {
		rows = append(rows, []string{"grants", humanize.Count(n, "container") + " claimed more batch resources than the kubelet has granted; sluice explain POD tells which"})
	}
	for _, contested := range s.Contested {
		rows = append(rows, []string{"contested", contested + ": somebody else changes it again and again, so repairs wait"})
	}
	for _, w := range s.SlowWrites {
		lasting := "under way for " + humanize.Lasting(time.Duration(w.ElapsedSeconds)*time.Second)
		if w.Waiting {
			lasting = "waiting for others for " + humanize.Lasting(time.Duration(w.ElapsedSeconds)*time.Second)
		}
		rows = append(rows, []string{"slow write", fmt.Sprintf("%s of %s to %s: %s", w.Knob, w.Object, w.To, lasting)})
	}
	return append(rows, []string{"so far", countersText(&s.Counters)}, []string{"drift", driftText(&s.Counters)}, []string{"errors", errorsText(&s.Counters)})
}

func modeText(s *status.Status) string {
	text := string(s.Mode)
	if s.Mode == status.ModePreview {
		text = "preview: it is decided and reported, and nothing is changed"
	}
	if s.Why != "" {
		text += " (" + s.Why + ")"
	}
	return text
}

func recordUpdatesText(r *status.Runtime) string {
	switch {
	case r.RecordUpdates == "":
		return "off: no runtime is connected"
	case r.RecordUpdatesWhy != "":
		return string(r.RecordUpdates) + ": " + r.RecordUpdatesWhy
	}
	return string(r.RecordUpdates)
}

func runtimeText(s *status.Status) string {
	r := &s.Runtime
	lasting := ""
	if !r.ChangedAt.IsZero() {
		lasting = " for " + humanize.Lasting(s.Time.Sub(r.ChangedAt))
	}
	if !r.Connected {
		return "not connected" + lasting + ": containers start without Sluice until the runtime's NRI socket answers"
	}
	return fmt.Sprintf("%s %s, NRI %s, connected%s", cmp.Or(r.Name, "unknown"), r.Version, cmp.Or(r.NRIVersion, "of unknown version"), lasting)
}

func countersText(c *status.Counters) string {
	resized := humanize.Count(c.Resized, "resize")
	if c.ResizesRefused > 0 {
		resized += fmt.Sprintf(" (%d refused)", c.ResizesRefused)
	}
	return fmt.Sprintf("%s placed, %d refused, %s, %s", humanize.Count(c.Placed, "container"), c.Refused, resized, humanize.Count(c.Reconnects, "reconnection"))
}

func driftText(c *status.Counters) string {
	if c.Drift == 0 {
		return "none: nobody else has changed a setting"
	}
	return humanize.Count(c.Drift, "change") + " by others repaired"
}

func errorsText(c *status.Counters) string {
	var parts []string
	if c.WriteErrors > 0 {
		parts = append(parts, humanize.Count(c.WriteErrors, "kernel write")+" failed")
	}
	if c.RecordUpdateFailures > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s of the runtime's record refused", c.RecordUpdateFailures, humanize.Count(c.RecordUpdates, "update")))
	}
	if c.Panics > 0 {
		parts = append(parts, humanize.Count(c.Panics, "panic")+": bugs in Sluice, with their stacks in its log")
	}
	return cmp.Or(strings.Join(parts, "; "), "none")
}

func pools(s *status.Status) [][]string {
	rows := [][]string{{"POOL", "CONTAINERS", "REQUESTED", "CPUS"}}
	for _, p := range s.Pools {
		rows = append(rows, []string{p.Name, fmt.Sprint(p.Containers), p.Requested.String(), cpuList(p.CPUs, "none")})
	}
	return rows
}

func pinHeader(wide bool) []string {
	header := []string{"PINNED", "CLASS", "CPUS", "MEMORY", "NOTE"}
	if wide {
		header = append(header, "REQUEST", "ID", "CGROUP")
	}
	return header
}

func pinRow(c *status.Container, wide bool) []string {
	cpus := cpuList(c.CPUs, "all")
	if c.Pool != "" {
		cpus = "none of its own: in pool " + c.Pool
	}
	return append([]string{c.Ref, c.Class.String(), cpus, setOr(c.Mems, "all"), note(c)}, more(c, wide)...)
}

func sharedHeader(wide bool) []string {
	header := []string{"SHARING", "CLASS", "POOL", "NOTE"}
	if wide {
		header = append(header, "REQUEST", "ID", "CGROUP", "CPUS", "MEMORY")
	}
	return header
}

func sharedRow(c *status.Container, wide bool) []string {
	row := append([]string{c.Ref, cmp.Or(status.ClassText(c.Class, c.Tier), "-"), cmp.Or(c.Pool, "-"), note(c)}, more(c, wide)...)
	if wide {
		row = append(row, setOr(c.CPUs, "all"), setOr(c.Mems, "all"))
	}
	return row
}

func more(c *status.Container, wide bool) []string {
	if !wide {
		return nil
	}
	return []string{c.Requested.String(), c.ID, cmp.Or(c.Cgroup, "-")}
}

// note returns the last column of a container's row.
func note(c *status.Container) string {
	var notes []string
	if !c.Controlled {
		notes = append(notes, "not controlled")
	}
	if c.Class.Pinned() && c.State == placement.Reserved {
		notes = append(notes, "not started")
	}
	if c.Drift > 0 {
		notes = append(notes, humanize.Count(c.Drift, "repair"))
	}
	if len(c.Warnings) > 0 {
		notes = append(notes, humanize.Count(len(c.Warnings), "warning"))
	}
	return strings.Join(notes, ", ")
}
