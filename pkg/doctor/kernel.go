package doctor

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

func (n *node) kernel() []Finding {
	return []Finding{n.release(), n.architecture(), n.pressure(), n.swap()}
}

func (n *node) release() Finding {
	release := n.text("proc/sys/kernel/osrelease")
	if release == "" {
		return warn("release", "the kernel's release can't be read", "make the host's /proc readable below "+n.Root)
	}
	what := "Linux " + release
	if name := osName(n.text("etc/os-release")); name != "" {
		what += ", " + name
	}
	if knobs.GroupIdentityCrashes(release) {
		return warn("release", what+": this kernel crashes the host when group identity is used; Sluice does not use it here, other software might",
			"upgrade the kernel: 4.19.91-25.6 is the first that is safe")
	}
	return ok("release", what)
}

// osName returns PRETTY_NAME of os-release(5), "" if it is missing.
func osName(osRelease string) string {
	for line := range strings.Lines(osRelease) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

func (n *node) architecture() Finding {
	switch n.Arch {
	case "amd64":
		return ok("architecture", n.Arch)
	case "arm64":
		return note("architecture", n.Arch+": works by the same files; Sluice's own tests run on amd64", "try it on a test node first")
	}
	return note("architecture", n.Arch+": Sluice's tests don't run on it", "try it on a test node first")
}

func (n *node) pressure() Finding {
	const name = "pressure (PSI)"
	// If PSI is off, the files don't exist or, in older kernels, can't be read.
	if n.text("proc/pressure/memory") != "" {
		if n.controllerV2("memory") || n.unified() != nil {
			return ok(name, "of the machine and of each cgroup")
		}
		return note(name, "of the machine only: cgroup v1 shows none of single containers",
			"mount the v2 hierarchy beside v1 (systemd does by default), or boot with cgroup v2; some vendors' kernels show it on v1 with psi_v1=1")
	}
	return note(name, "off: Sluice's background reclaim works without this signal",
		"boot with psi=1, on a kernel with CONFIG_PSI")
}

func (n *node) swap() Finding {
	lines := strings.Split(n.text("proc/swaps"), "\n")
	if len(lines) < 2 {
		return ok("swap", "off")
	}
	what := humanize.Count(len(lines)-1, "swap area") + " in use"
	behavior := n.kubelet.config.MemorySwap.SwapBehavior
	if behavior == "LimitedSwap" {
		return note("swap", what+"; the kubelet keeps Guaranteed pods out of it, Burstable ones of class LS may be swapped",
			"swapoff -a where their latency matters, or set memorySwap: {swapBehavior: NoSwap} in the kubelet's configuration")
	}
	if n.kubelet.found && n.controllerV2("memory") {
		return ok("swap", what+"; the kubelet keeps pods out of it")
	}
	return warn("swap", what+": memory of latency-sensitive pods may be swapped out", "swapoff -a, and take it out of /etc/fstab")
}

func (n *node) cpus() []Finding {
	if n.machine == nil {
		return []Finding{fail("topology", fmt.Sprintf("the machine can't be read: %v", n.machineErr), "mount the host's /sys and /proc below "+n.Root)}
	}
	m := n.machine
	findings := []Finding{ok("topology", fmt.Sprintf("CPUs %s, %s, %d L3, %s, %s", m.Online,
		humanize.Count(len(m.Cores), "core"), len(m.L3s), humanize.Count(len(m.Nodes), "NUMA node"), humanize.Count(len(m.Packages), "package")))}
	smt := false
	for _, core := range m.Cores {
		smt = smt || core.CPUs.Size() > 1
	}
	if smt {
		findings = append(findings, ok("SMT", "on: LSE pods get whole cores"))
	} else {
		findings = append(findings, ok("SMT", "none, or off: each CPU is a core"))
	}
	if n.CoreSched != knobs.Inconclusive || n.CoreSchedWhy != "" {
		findings = append(findings, n.coreScheduling(smt))
	}
	reserved := n.Config != nil && m.Isolated.SubsetOf(n.Config.Reserved)
	if !m.Isolated.IsEmpty() && !reserved {
		findings = append(findings, warn("isolcpus", fmt.Sprintf("CPUs %s are isolated: the scheduler does not balance there, so that all threads of a container stay on one of them", m.Isolated),
			"boot without isolcpus, since pins keep CPUs free; or keep Sluice off them: reserved: \""+m.Isolated.String()+"\""))
	} else if !m.Isolated.IsEmpty() {
		findings = append(findings, ok("isolcpus", "CPUs "+m.Isolated.String()+" are isolated, and reserved in Sluice's configuration"))
	}
	if !m.NoHzFull.IsEmpty() {
		findings = append(findings, ok("nohz_full", "CPUs "+m.NoHzFull.String()+" run without the tick while one task is on them"))
	}
	return findings
}

func (n *node) coreScheduling(smt bool) Finding {
	const name = "core scheduling"
	switch {
	case n.CoreSched == knobs.Supported:
		return ok(name, "groups of pods can keep other pods off their cores")
	case n.CoreSched == knobs.Inconclusive:
		return warn(name, "it could not be tried: "+n.CoreSchedWhy, "run sluice doctor as root, on the node itself")
	case !smt:
		return ok(name, "not needed: no core is shared by two threads")
	}
	return note(name, "not available: "+n.CoreSchedWhy, "a kernel with CONFIG_SCHED_CORE, 5.14 or later; class LSE keeps cores to one container without it")
}
