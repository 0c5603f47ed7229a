package doctor

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// resctrl checks cache and memory-bandwidth allocation (RDT, AMD's QoS). The kernel registers
// the file system only if both the processor and the kernel support it (resctrl_late_init,
// arch/x86/kernel/cpu/resctrl/core.c).
func (n *node) resctrl() []Finding {
	const name = "resctrl"
	const none = "cpusets by L3 domain still separate caches"
	for i := range n.mounts {
		if m := &n.mounts[i]; m.kind == name {
			return n.mounted(m)
		}
	}
	filesystems := strings.Fields(n.text("proc/filesystems"))
	flags := rdtFlags(n.text("proc/cpuinfo"))
	switch {
	case slices.Contains(filesystems, name):
		return []Finding{note(name, "available ("+some(flags)+"), but not mounted", "mount -t resctrl resctrl /sys/fs/resctrl, and add it to /etc/fstab")}
	case len(flags) > 0:
		return []Finding{note(name, "the processor supports it ("+some(flags)+"), the kernel does not; "+none,
			"a kernel with CONFIG_X86_CPU_RESCTRL, booted without options such as rdt=!l3cat")}
	}
	return []Finding{note(name, "not available on this machine, as on most virtual ones; "+none, "no action needed; most bare-metal servers have it: Intel RDT, AMD QoS")}
}

func (n *node) mounted(m *mount) []Finding {
	var resources []string
	classes := 0 // the resource with the fewest classes sets the number for all
	for _, resource := range n.names(path.Join(m.dir, "info")) {
		if !strings.HasPrefix(resource, "last_") {
			resources = append(resources, resource)
		}
		ids, err := strconv.Atoi(n.text(path.Join(m.dir, "info", resource, "num_closids")))
		if err == nil && (classes == 0 || ids < classes) {
			classes = ids
		}
	}
	what := "mounted at " + m.at + ": " + some(resources)
	if classes > 0 {
		what += "; " + humanize.Count(classes, "class")
	}
	if slices.Contains(strings.Split(m.options, ","), "mba_MBps") {
		what += "; bandwidth in MB/s (mba_MBps)"
	}
	findings := []Finding{ok("resctrl", what)}
	if m.readOnly {
		findings = append(findings, warn("resctrl", m.at+" is mounted read-only", "mount -o remount,rw "+m.at))
	}
	return findings
}

// rdtFlags returns the processor's flags for allocating and monitoring cache and memory
// bandwidth, as cpufeatures.h names them.
func rdtFlags(cpuinfo string) []string {
	known := []string{"cat_l3", "cat_l2", "cdp_l3", "cdp_l2", "mba", "smba", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"}
	for line := range strings.Lines(cpuinfo) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "flags" {
			has := strings.Fields(value)
			return slices.DeleteFunc(known, func(flag string) bool { return !slices.Contains(has, flag) })
		}
	}
	return nil
}
