package doctor

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// self checks Sluice: its files, the running plugin, and the errors that the plugin has
// counted.
func (n *node) self() []Finding {
	findings := append(append(n.plugin(), n.configuration()...), n.rules()...)
	if n.StateErr != nil {
		findings = append(findings, fail("state folder", n.StateErr.Error(), "make it writable for Sluice, or name another stateDir in the configuration"))
	} else if n.Config != nil {
		findings = append(findings, ok("state folder", n.Config.StateDir))
	}
	findings = append(findings, n.eviction()...)
	if n.RuntimeErr != nil {
		findings = append(findings, fail("runtime folder", n.RuntimeErr.Error(), "make it writable for Sluice (a tmpfs), or name another runtimeDir in the configuration"))
	} else if n.Config != nil {
		findings = append(findings, ok("runtime folder", n.Config.RuntimeDir))
	}
	findings = append(findings, n.weightless()...)
	findings = append(findings, n.preInstalled()...)
	if n.Status != nil {
		findings = append(findings, n.counters()...)
	}
	return findings
}

// eviction checks whether pods can be evicted, if the configuration asks for it.
func (n *node) eviction() []Finding {
	if n.Config == nil || n.Config.Control.Eviction.By == control.EvictReport {
		return nil
	}
	if n.Config.Control.Eviction.By == control.EvictKubernetes {
		return n.evictionByKubernetes()
	}
	if n.EvictErr != nil {
		return []Finding{warn("eviction", "by cri, which does not work here: "+n.EvictErr.Error(), "name the runtime's CRI socket in control.eviction.socket; in a pod, mount its folder below the host root")}
	}
	return []Finding{ok("eviction", "by cri, through the runtime's socket")}
}

// evictionByKubernetes checks whether sluice-kube is there, and the runtime's socket as the last
// resort.
func (n *node) evictionByKubernetes() []Finding {
	var findings []Finding
	if n.Status != nil && n.Status.Loop != nil && n.Status.Loop.Evictions.Problem != "" {
		findings = append(findings, warn("eviction", "by kubernetes, which does not work now: "+n.Status.Loop.Evictions.Problem, "start sluice run with --kube-socket, and sluice-kube beside it; its log says why it does not connect"))
	}
	if n.EvictErr != nil {
		findings = append(findings, warn("eviction", "by kubernetes without its last resort, so that the kernel kills where memory is critical and no pod can be evicted in time: "+n.EvictErr.Error(), "name the runtime's CRI socket in control.eviction.socket; in a pod, mount its folder below the host root"))
	}
	if len(findings) == 0 {
		findings = append(findings, ok("eviction", "by kubernetes, and at critical memory through the runtime's socket"))
	}
	return findings
}

// weightless warns of services that request no CPU and so run in the same cgroup as batch work,
// with which the kernel ranks them. Examples are static and critical pods, such as kubeadm's
// kube-proxy.
func (n *node) weightless() []Finding {
	if n.Status == nil {
		return nil
	}
	var services []string
	batch := false
	for i := range n.Status.Containers {
		c := &n.Status.Containers[i]
		if !strings.Contains(c.Cgroup, "besteffort") {
			continue
		}
		if c.Class == workload.BE {
			batch = true
		} else {
			services = append(services, c.Ref)
		}
	}
	if !batch || services == nil {
		return nil
	}
	return []Finding{warn("BestEffort services", some(services)+" request no CPU: in the kubelet's BestEffort cgroup they share the lowest CPU weight with batch work", "give each a CPU request, or make it batch work (class.sluice.dev: BE)")}
}

func (n *node) plugin() []Finding {
	s := n.Status
	if s == nil {
		why := "no plugin answers"
		if n.StatusErr != nil {
			why = n.StatusErr.Error()
		}
		if p := n.service(); p != nil {
			return []Finding{warn("plugin", fmt.Sprintf("runs as process %d and does not answer: %s", p.id, why), "run sluice doctor as root; name its socket with --status-socket; see its log")}
		}
		return []Finding{note("plugin", "not running: "+why, "start it: systemctl start sluice, or sluice run")}
	}
	findings := []Finding{ok("plugin", "answers; version "+s.Version)}
	if s.Version != n.Version {
		findings[0] = note("plugin", "answers; version "+s.Version+", this command is "+n.Version, "restart the service: it runs the binary from before an upgrade")
	}
	findings = append(findings, n.rights()...)
	if s.Mode == status.ModeOn && s.Why == "" {
		return append(findings, ok("mode", "on"))
	}
	what := string(s.Mode)
	if s.Why != "" {
		what += ": " + s.Why
	}
	return append(findings, note("mode", what, "see neighbours above; where it is by choice: set mode: on in the configuration and restart Sluice"))
}

// rights warns of what the running plugin can't do because it lacks a capability.
func (n *node) rights() []Finding {
	if n.service().lacks("CAP_SYS_RESOURCE") == nil {
		return nil
	}
	return []Finding{note("capabilities", "the plugin runs without CAP_SYS_RESOURCE: pressure wakes its loop up to 2 s late (it still measures every control.fastInterval), and it cannot protect itself from the OOM killer", "give it SYS_RESOURCE (securityContext.capabilities.add) if the runtime can; a pod of priority class system-node-critical is protected by the kubelet")}
}

func (n *node) configuration() []Finding {
	from := cmp.Or(n.ConfigFile, "the shipped defaults")
	if n.Config == nil {
		return []Finding{fail("configuration", fmt.Sprintf("%s can't be used: %s", from, oneLine(n.ConfigErr)), "correct it; sluice check -f "+n.ConfigFile+" lists its mistakes")}
	}
	if n.machine == nil {
		return []Finding{ok("configuration", from)}
	}
	warnings, err := n.Config.Fit(n.machine)
	if err != nil {
		warnings = append(warnings, oneLine(err))
	}
	if len(warnings) > 0 {
		return []Finding{warn("configuration", from+" does not fit this machine: "+strings.Join(warnings, "; "), "change its CPUs and pools, and restart Sluice")}
	}
	return []Finding{ok("configuration", from)}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// rules warns of rules of the control loop that have no effect on this kernel.
func (n *node) rules() []Finding {
	if n.Config == nil || !n.probed() || n.Features.Reclaim {
		return nil
	}
	var idle []string
	for i := range n.Config.Control.Rules {
		if r := &n.Config.Control.Rules[i]; r.Action == control.RuleReclaim && r.Mode != control.Off {
			idle = append(idle, r.Name)
		}
	}
	if idle == nil {
		return nil
	}
	return []Finding{warn("rules", "action reclaim of "+some(idle)+" does nothing here: the kernel has no memory.reclaim", "choose throttle or evict in control.rules; Linux 5.19 on cgroup v2 brings it")}
}

// service returns the first process that is 'sluice run', nil if there is none.
func (n *node) service() *process {
	for i := range n.processes {
		if p := &n.processes[i]; isSluice(p.name) && slices.Contains(n.arguments(p), "run") {
			return p
		}
	}
	return nil
}

// preInstalled warns of a plugin that the runtime starts only once.
func (n *node) preInstalled() []Finding {
	own := n.plugins(isSluice)
	if len(own) == 0 {
		return nil
	}
	const name = "pre-installed"
	file := "/opt/nri/plugins/" + own[0]
	if p := n.service(); p != nil {
		return []Finding{fail(name, fmt.Sprintf("%s, and as a service (process %d): the two conflict on every container", file, p.id), "remove one of them, and restart the runtime")}
	}
	return []Finding{warn(name, file+": the runtime starts it once and, if it ends, not again before its own restart", "prefer a service of its own: remove the file and run sluice as a systemd service")}
}

// counters reports the errors that the plugin has counted since its start.
func (n *node) counters() []Finding {
	c := &n.Status.Counters
	var findings []Finding
	if c.WriteErrors > 0 {
		findings = append(findings, warn("kernel writes", humanize.Count(c.WriteErrors, "write")+" failed", "Sluice's log has the files and the kernel's errors"))
	}
	if c.Panics > 0 {
		findings = append(findings, warn("panics", humanize.Count(c.Panics, "bug")+" in Sluice occurred", "report the stack traces in its log"))
	}
	if c.GrantsCut > 0 {
		findings = append(findings, note("grants", claimants(c.GrantsCut)+" more batch resources than the kubelet granted, and got what the kubelet granted", "sluice status and sluice explain POD show which; let an admission webhook write grant.sluice.dev, not tenants"))
	}
	if c.RanRefused > 0 {
		findings = append(findings, warn("refused starts", fmt.Sprintf("the runtime ran %s whose start Sluice refused, as CRI-O does: each shares CPUs until exclusive ones are free", humanize.Count(c.RanRefused, "container")), "sluice explain POD and Sluice's log say why"))
	}
	if c.BatchKills+c.ServiceKills > 0 {
		findings = append(findings, warn("memory kills", fmt.Sprintf("the kernel killed %d batch containers that might have held more, and %d of services for what batch work held", c.BatchKills, c.ServiceKills), "Sluice's log has the cgroups and amounts; lower control.memory.safePercent"))
	}
	if mixers := n.mixers(); mixers != "" {
		findings = append(findings, note("besteffort", mixers+" in the cgroup of BestEffort pods, but not batch work: batch pods there are limited one by one", "give such pods a request, or a class by a classify rule"))
	}
	if c.RecordUpdateFailures > 0 {
		findings = append(findings, note("record updates", fmt.Sprintf("the runtime refused %d of %d", c.RecordUpdateFailures, c.RecordUpdates), "see Sluice's and the runtime's log; the kernel's settings are correct nevertheless"))
	}
	if c.Drift > 0 {
		findings = append(findings, note("drift", humanize.Count(c.Drift, "change")+" by others repaired"+n.drifted(), "sluice explain POD shows what it should have; see neighbours above for who else writes"))
	}
	if findings == nil {
		return []Finding{ok("so far", "no failed write, no drift, no panic")}
	}
	return findings
}

// mixers names the pods that are no batch work but run in the cgroup of BestEffort pods.
func (n *node) mixers() string {
	if n.Status.Loop == nil || len(n.Status.Loop.Batch.MixedPods) == 0 {
		return ""
	}
	all := n.Status.Loop.Batch.MixedPods
	if len(all) == 1 {
		return all[0] + " is"
	}
	return some(all) + " are"
}

// drifted names the containers whose settings other programs have changed most often.
func (n *node) drifted() string {
	all := slices.DeleteFunc(slices.Clone(n.Status.Containers), func(c status.Container) bool { return c.Drift == 0 })
	slices.SortStableFunc(all, func(a, b status.Container) int { return b.Drift - a.Drift })
	if len(all) == 0 {
		return ""
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = fmt.Sprintf("%s (%d)", all[i].Ref, all[i].Drift)
	}
	return ": " + some(names)
}

// pinned reports processes that run on a container's pinned CPUs and don't belong to it.
func (n *node) pinned() []Finding {
	if n.Status == nil {
		return nil
	}
	pinned := cpuset.Union(n.Status.Machine.Pinned, n.Status.Machine.External)
	if pinned.IsEmpty() {
		return []Finding{ok("pins", "there are none")}
	}
	return append(n.foreignTasks(pinned), n.interrupts(pinned))
}

func (n *node) foreignTasks(pinned cpuset.Set) []Finding {
	var parents []string
	for i := range n.Status.Containers {
		if dir := path.Dir(n.Status.Containers[i].Cgroup); len(dir) > 1 {
			parents = append(parents, dir)
		}
	}
	var bound []string
	free := 0
	for i := range n.processes {
		p := &n.processes[i]
		if p.kernel() || !p.allowed.Overlaps(pinned) || n.inPod(p, parents) {
			continue
		}
		if n.Status.Machine.Online.SubsetOf(p.allowed) {
			free++
			continue
		}
		bound = append(bound, p.name+" ("+strconv.Itoa(p.id)+") on "+p.allowed.String())
	}
	const system = "keep system services off: AllowedCPUs= in system.slice (cgroup v2), CPUAffinity= in /etc/systemd/system.conf; or name reserved CPUs for them"
	var findings []Finding
	if bound != nil {
		findings = append(findings, warn("bound processes", humanize.Count(len(bound), "process")+" outside of pods, bound to CPUs of which some are pinned: "+some(bound), "change their taskset or CPUAffinity="))
	}
	if free > 0 {
		findings = append(findings, note("other processes", humanize.Count(free, "process")+" outside of pods may run on pinned CPUs "+pinned.String(), system))
	}
	if findings == nil {
		findings = append(findings, ok("other processes", "none outside of pods may run on pinned CPUs "+pinned.String()))
	}
	return findings
}

func (n *node) interrupts(pinned cpuset.Set) Finding {
	const name = "interrupts"
	if n.Affinities == nil {
		return note(name, "their affinities can't be read", "run sluice doctor as root, on the node itself")
	}
	here, all := 0, 0
	for file, cpus := range n.Affinities {
		if _, err := strconv.Atoi(string(file)); err != nil {
			continue
		}
		all++
		if cpus.Overlaps(pinned) {
			here++
		}
	}
	if here == 0 {
		return ok(name, fmt.Sprintf("none of %d may reach pinned CPUs", all))
	}
	do := "steer: {irqs: true, workqueues: true} in the configuration keeps them off CPUs of LSE containers"
	if n.Config != nil && n.Config.Steer.IRQs {
		do = "no action possible: steering is on, and the kernel does not let these move, or the pins are of LSR containers, from which nothing is steered"
	}
	return note(name, fmt.Sprintf("%d of %d may reach pinned CPUs %s", here, all, pinned), do)
}

func claimants(n int) string {
	if n == 1 {
		return "1 container claims"
	}
	return humanize.Count(n, "container") + " claim"
}
