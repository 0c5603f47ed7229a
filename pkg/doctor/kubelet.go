package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload/grants"
)

// kubelet describes the node's kubelet, from its files and flags.
type kubelet struct {
	found  bool
	record string // path of the record of its grants, below the host's root
	config peers.KubeletConfig
	err    error
}

func (n *node) readKubelet() kubelet {
	running, _ := peers.FindKubelet(n.Host) // Detect reports the error
	k := kubelet{record: running.File(grants.File)}
	k.config, k.err = running.Config(n.Host)
	k.found = running.PID != 0 || k.config.File != ""
	return k
}

func (n *node) kubeletSettings() []Finding {
	k := &n.kubelet
	if k.err != nil {
		return []Finding{warn("configuration", fmt.Sprintf("%s can't be read: %v", k.config.From(), k.err), "correct the file, or make it readable below "+n.Root)}
	}
	if !k.found && len(n.others) == 0 {
		return []Finding{note("configuration", "no kubelet was found: neither a process nor /var/lib/kubelet/config.yaml", "run sluice doctor again once the node is part of a cluster; if the kubelet is part of another program (k3s), check its settings by hand")}
	}
	c := &k.config
	findings := []Finding{
		n.manager("CPU manager", peers.CPUManager, c.CPUManagerPolicy, "none", "cpuManagerPolicy"),
		n.manager("memory manager", peers.MemoryManager, c.MemoryManagerPolicy, "None", "memoryManagerPolicy"),
	}
	if c.TopologyManagerPolicy == "" || c.TopologyManagerPolicy == "none" {
		findings = append(findings, ok("topology manager", "none"))
	} else {
		findings = append(findings, ok("topology manager", c.TopologyManagerPolicy+": it aligns devices alone where the CPU and the memory manager are off"))
	}
	if c.FeatureGates["MemoryQoS"] {
		findings = append(findings, warn("MemoryQoS", "on: the kubelet writes memory.min and memory.high of pods, as Sluice does for those that ask", "set featureGates: {MemoryQoS: false} in "+k.config.From()+" and restart the kubelet, or use no memory-qos.sluice.dev"))
	} else {
		findings = append(findings, ok("MemoryQoS", "off"))
	}
	if c.CPUCFSQuota != nil && !*c.CPUCFSQuota {
		findings = append(findings, note("CPU quota", "off: containers have no quota to burst above, and requests are inferred from cpu.shares, which end at 256 CPUs", "set cpuCFSQuota: true in "+k.config.From()+" if pods ask for burst"))
	} else {
		findings = append(findings, ok("CPU quota", "on"))
	}
	return append(findings, n.allocated())
}

// allocated checks that the kubelet's record of its grants can be used.
func (n *node) allocated() Finding {
	const name = "granted requests"
	file := "/" + n.kubelet.record
	text, err := fs.ReadFile(n.Host, n.kubelet.record)
	if errors.Is(err, fs.ErrNotExist) {
		return note(name, "no "+file+": requests are inferred from weights, limits and OOM scores, and those of batch work from annotations", "no action needed; Kubernetes 1.33 and later keep that file, unless their feature gate InPlacePodVerticalScaling is off")
	}
	var record *grants.Record
	if err == nil {
		record, err = grants.Parse(text)
	}
	if err != nil {
		return warn(name, file+" "+oneLine(err)+": requests are inferred from weights, limits and OOM scores, and those of batch work from annotations", "use a version of Sluice that understands this kubelet's format; report the file's first line")
	}
	return ok(name, file+": exact for "+humanize.Count(record.Pods(), "pod"))
}

// manager checks one of the kubelet's managers. The manager's state file, by which it is
// detected, shows the policy in force; the configuration shows the policy after a restart.
func (n *node) manager(name string, kind peers.Kind, policy, off, key string) Finding {
	for i := range n.others {
		if f := &n.others[i]; f.Kind == kind {
			return warn(name, f.Evidence+"; it writes "+f.Owns+". "+f.Response, f.Fix)
		}
	}
	if policy == "" || strings.EqualFold(policy, off) {
		return ok(name, off)
	}
	return warn(name, policy+" from the kubelet's next start on, by "+n.kubelet.config.From()+"; it then writes sets that Sluice writes", "set "+key+": "+off)
}

// neighbours warns of other programs that write the same files.
func (n *node) neighbours() []Finding {
	var findings []Finding
	for i := range n.others {
		if f := &n.others[i]; f.Kind != peers.CPUManager && f.Kind != peers.MemoryManager {
			findings = append(findings, warn(string(f.Kind), f.Evidence+"; it writes "+f.Owns+". "+f.Response, f.Fix))
		}
	}
	if n.othersErr != nil {
		findings = append(findings, warn("detection", oneLine(n.othersErr), "make the host's /proc and the kubelet's root folder readable below "+n.Root))
	}
	if others := n.plugins(func(name string) bool { return !isSluice(name) }); len(others) > 0 {
		findings = append(findings, note("NRI plugins", "pre-installed beside Sluice: "+some(others)+"; two plugins that set one field fail the container", "make sure that none of them sets CPU sets, CPU limits or memory limits of the same pods"))
	}
	balancer := slices.IndexFunc(n.processes, func(p process) bool { return p.name == "irqbalance" }) // matches an irqbalance in a pod, too
	if balancer >= 0 && n.Config != nil && n.Config.Steer.IRQs {
		findings = append(findings, note("irqbalance", fmt.Sprintf("runs (process %d) and undoes Sluice's interrupt steering", n.processes[balancer].id), "stop irqbalance, or keep steer: {irqs: false}"))
	}
	if findings == nil {
		findings = append(findings, ok("others", "no other program writes CPU and memory settings"))
	}
	return findings
}

// plugins lists the pre-installed NRI plugins that match.
func (n *node) plugins(match func(name string) bool) []string {
	return slices.DeleteFunc(n.names("opt/nri/plugins"), func(name string) bool { return !match(name) })
}

func isSluice(name string) bool { return strings.Contains(name, "sluice") }
