package render

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/audit"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Explain writes everything that is known about some containers, 80 columns wide. trail has
// decisions about their pod from the audit trail; Explain adds those in the status.
func Explain(w io.Writer, s *status.Status, containers []status.Container, trail []audit.Entry) error {
	var out strings.Builder
	if s.Mode == status.ModePreview {
		paragraph(&out, "", "Sluice is in mode "+modeText(s)+".")
		out.WriteString("\n")
	}
	for i := range containers {
		c := &containers[i]
		if i > 0 {
			out.WriteString("\n")
		}
		paragraph(&out, "", c.Ref)
		rows := [][]string{
			{"class", cmp.Or(status.ClassText(c.Class, c.Tier), "none")},
			{"pool", cmp.Or(c.Pool, "none")},
			{"CPUs", cpusText(c.CPUs)},
			{"memory", memsText(c.Mems)},
			{"CPU quota", quotaOf(c)},
			{"why", c.Why},
			{"requested", requestText(c)},
			{"state", stateText(c)},
			{"drift", driftOf(c)},
			{"cgroup", cmp.Or(c.Cgroup, "unknown")},
			{"id", c.ID},
		}
		if text := notifiedText(s.Loop, c); text != "" {
			rows = append(rows, []string{"notices", text})
		}
		terminal.Table(&out, "  ", terminal.Columns, slices.Insert(rows, 7, usageRows(c)...))
		kernelText(&out, c)
		reasons(&out, "  ", c.Keys, c.Warnings)
	}
	for _, pod := range status.PodNames(containers) {
		policyText(&out, policyKeys(s, containers, pod, trail))
		podLoopText(&out, s.Loop, pod, trail)
	}
	return flush(w, &out)
}

// explained is a container as ExplainJSON writes it.
type explained struct {
	status.Container
	Policy []PolicyKey `json:"policy,omitempty"`
}

// ExplainJSON writes some containers as the status has them, each with the keys that concern it and whose
// values come from parts of the fleet's policy. trail is as for Explain.
func ExplainJSON(w io.Writer, s *status.Status, containers []status.Container, trail []audit.Entry) error {
	all := make([]explained, len(containers))
	for i := range containers {
		one := containers[i : i+1]
		all[i] = explained{Container: one[0], Policy: policyKeys(s, one, status.PodNames(one)[0], trail)}
	}
	return terminal.JSON(w, all)
}

// kernelText lists the settings in the kernel with their mechanisms, and the requested settings
// that this node doesn't support.
func kernelText(out *strings.Builder, c *status.Container) {
	if len(c.Settings) > 0 {
		rows := [][]string{{"KERNEL FILE", "OF", "VALUE", "WHY"}}
		for _, k := range c.Settings {
			why := k.Why
			if k.Problem != "" {
				why += "; NOT SET: " + k.Problem
			}
			if k.Drift > 0 {
				why += "; " + humanize.Count(k.Drift, "change") + " by others repaired"
				if k.Suspect != "" {
					why += ", the last likely by " + k.Suspect
				}
			}
			if k.Contested {
				why += "; somebody else changes it again and again, so repairs wait"
			}
			rows = append(rows, []string{cmp.Or(k.File, k.Knob), string(k.Level), k.Value, why})
		}
		out.WriteString("\n")
		terminal.Table(out, "  ", terminal.Columns, rows)
	}
	if len(c.Cache) > 0 {
		rows := [][]string{{"L3 CACHE", "IN USE", "MEMORY TRAFFIC", "OF IT LOCAL"}}
		for _, u := range c.Cache {
			rows = append(rows, []string{strconv.Itoa(u.ID), known(u.OccupancyBytes), known(u.TotalBytes), known(u.LocalBytes)})
		}
		out.WriteString("\n")
		terminal.Table(out, "  ", terminal.Columns, rows)
	}
	if len(c.Lacks) == 0 {
		return
	}
	rows := [][]string{{"ASKED", "HERE"}}
	for _, l := range c.Lacks {
		text := l.Text
		if l.Missing {
			text = "missing: " + text
		}
		rows = append(rows, []string{l.Key, text})
	}
	out.WriteString("\n")
	terminal.Table(out, "  ", terminal.Columns, rows)
}

// known formats an amount in bytes; a negative amount is unknown.
func known(bytes int64) string {
	if bytes < 0 {
		return "unknown"
	}
	return humanize.Bytes(bytes)
}

func cpusText(cpus cpuset.Set) string { return cpuList(cpus, "all that its pod may use") }

func memsText(mems cpuset.Set) string {
	if mems.IsEmpty() {
		return "from every NUMA node"
	}
	if mems.Size() == 1 {
		return "from NUMA node " + mems.String()
	}
	return "from NUMA nodes " + mems.String()
}

func quotaText(unlimited bool) string {
	if unlimited {
		return "lifted: nobody else may use its CPUs"
	}
	return "as the kubelet set it"
}

// requestText describes what a container requested, and the source of that information.
func requestText(c *status.Container) string {
	text := c.Requested.String() + " CPU"
	if c.RequestedMemoryBytes > 0 {
		text += " and " + humanize.Bytes(c.RequestedMemoryBytes) + " of memory"
	}
	switch c.RequestedBy {
	case workload.FromKubelet:
		text += ", by the kubelet's record"
	case workload.FromAnnotation:
		text += ", by an annotation"
	case workload.Inferred:
		text += ", inferred from its weight, limits and OOM score"
	}
	return text
}

// quotaOf describes a running container's quota: the one that Sluice has set, for the container
// or for its pod, otherwise the kubelet's.
func quotaOf(c *status.Container) string {
	var set []string
	for _, k := range c.Settings {
		if k.Knob == knobs.Quota.String() && k.Problem == "" {
			set = append(set, k.Value+" for the "+string(k.Level))
		}
	}
	if c.Unlimited || len(set) == 0 {
		return quotaText(c.Unlimited)
	}
	return "set by Sluice: " + strings.Join(set, ", ")
}

// notifiedText says what is in the file of a container that asks for notices; "" for another one.
func notifiedText(l *status.Loop, c *status.Container) string {
	switch i := slices.IndexFunc(c.Keys, func(k workload.RequestKey) bool { return k.Key == "notice" }); {
	case i < 0 || c.Keys[i].Value == "none" || l == nil:
		return ""
	case l.Notices.Active != nil && l.Mode == control.On:
		return activeNotice(l.Notices.Active)
	}
	return "none now"
}

func stateText(c *status.Container) string {
	text := "started"
	if c.State == placement.Reserved {
		text = "created, not started yet"
	}
	if !c.Controlled {
		text += "; accounted only: its CPUs are not Sluice's to set"
	}
	return text
}

func driftOf(c *status.Container) string {
	if c.Drift == 0 {
		return "none: nobody else has changed its settings"
	}
	return humanize.Count(c.Drift, "change") + " by others repaired"
}

// reasons lists the source of each setting, and the warnings.
func reasons(out *strings.Builder, indent string, settings []workload.RequestKey, warnings []string) {
	if len(settings) > 0 {
		rows := [][]string{{"SETTING", "VALUE", "FROM"}}
		for _, s := range settings {
			rows = append(rows, []string{s.Key, s.Value, s.Source})
		}
		out.WriteString("\n")
		terminal.Table(out, indent, terminal.Columns, rows)
	}
	if len(warnings) > 0 {
		out.WriteString("\n")
	}
	for _, w := range warnings {
		terminal.Table(out, indent, terminal.Columns, [][]string{{"warning", w}})
	}
}

// paragraph writes text wrapped at 80 columns.
func paragraph(out *strings.Builder, indent, text string) {
	terminal.Table(out, indent, terminal.Columns, [][]string{{text}})
}
