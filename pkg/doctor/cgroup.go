package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// required lists the controllers that Sluice uses, by their v2 names, with what doesn't work
// without each.
var required = []struct {
	name  string
	level Level
	lost  string
}{
	{"cpuset", Fail, "no container can have CPUs of its own"},
	{"cpu", Fail, "neither quotas nor CPU priorities can be set"},
	{"memory", Warn, "memory QoS has no effect"},
	{"io", Note, "I/O weights and throttles have no effect"},
}

func (n *node) cgroups() []Finding {
	if n.mountsErr != nil {
		return []Finding{fail("mounts", fmt.Sprintf("the mount table can't be read: %v", n.mountsErr), "mount the host's /proc below "+n.Root)}
	}
	if n.hierarchy("cpuset") == nil && n.hierarchy("cpu") == nil {
		return []Finding{fail("mounts", "no cgroup hierarchy with the cpuset or the cpu controller is mounted", "mount the host's /sys with its cgroup tree below "+n.Root)}
	}
	findings := []Finding{n.layout()}
	var readOnly, partial []string
	for _, c := range required {
		m := n.hierarchy(c.name)
		findings = append(findings, n.controller(c.name, c.level, c.lost, m))
		if m != nil && m.readOnly && !slices.Contains(readOnly, m.at) {
			readOnly = append(readOnly, m.at)
		}
		if m != nil && m.part(n) && !slices.Contains(partial, m.at) {
			partial = append(partial, m.at)
		}
	}
	if readOnly != nil {
		findings = append(findings, fail("mounts", "mounted read-only: "+some(readOnly), "in a pod: mount the host's /sys/fs/cgroup writable, in a privileged container; on the node: mount -o remount,rw "+readOnly[0]))
	}
	if partial != nil {
		findings = append(findings, fail("mounts", "only a part of the cgroup tree is shown: "+some(partial), "run Sluice in the host's cgroup namespace, or mount the host's /sys/fs/cgroup"))
	}
	findings = append(findings, n.podsCPUs()...)
	return append(findings, n.namespace(), n.driver(), n.partitions())
}

// podsCPUs warns if the cgroup of all pods lacks CPUs of the machine.
func (n *node) podsCPUs() []Finding {
	m := n.hierarchy("cpuset")
	if m == nil || n.machine == nil {
		return nil
	}
	dir := n.podsDir(m)
	file := path.Join(dir, "cpuset.cpus")
	if m.v2() {
		file += ".effective"
	}
	cpus, err := cpuset.Parse(n.text(file))
	lacks := cpuset.Difference(n.machine.Online, cpus)
	if dir == "" || err != nil || cpus.IsEmpty() || lacks.IsEmpty() {
		return nil
	}
	return []Finding{warn("CPUs of pods", fmt.Sprintf("/%s lacks CPUs %s: no container can have them, and Sluice places none there", dir, lacks),
		"widen AllowedCPUs= of kubepods.slice or of a slice above it; where the CPUs are kept on purpose, name them as reserved, and have the kubelet reserve as many (reservedSystemCPUs)")}
}

func (n *node) layout() Finding {
	const advice = "no action needed; cgroup v2 (boot with systemd.unified_cgroup_hierarchy=1) brings memory.min, low and high, background reclaim and pressure of each container"
	v1, v2 := false, false
	for _, c := range required {
		if m := n.hierarchy(c.name); m != nil {
			v1, v2 = v1 || !m.v2(), v2 || m.v2()
		}
	}
	switch {
	case !v1:
		return ok("version", "v2")
	case v2:
		return note("version", "v1 and v2, controllers on both", advice)
	case n.unified() != nil:
		return note("version", "v1, with v2 beside it (hybrid)", advice)
	}
	return note("version", "v1", advice)
}

func (n *node) controller(name string, level Level, lost string, m *mount) Finding {
	missing := func(what, do string) Finding {
		return Finding{Name: name, Level: level, What: what + ": " + lost, Do: do}
	}
	if m == nil {
		return missing("not mounted", "mount it, on a kernel that has it, booted without cgroup_disable= for it; see /proc/cgroups")
	}
	if !m.v2() {
		return ok(name, m.String())
	}
	pods := n.podsDir(m)
	for _, dir := range []string{m.dir, pods} {
		file := path.Join(dir, "cgroup.subtree_control")
		text, err := fs.ReadFile(n.Host, file)
		switch {
		case dir == "" || err != nil || slices.Contains(strings.Fields(string(text)), name):
		case pods == "":
			return note(name, m.String()+", not enabled for pods yet", "start the kubelet, which enables it for its pods, and run sluice doctor again")
		default:
			return missing("not enabled for the cgroups below /"+dir, fmt.Sprintf("echo +%s > /%s", name, file))
		}
	}
	return ok(name, m.String()+", enabled for pods")
}

// podsDirs lists the folders of all pods below a hierarchy, by the kubelet's cgroup driver. The
// longer paths are those of kind and of other kubelets with a cgroupRoot.
var podsDirs = []struct{ dir, driver string }{
	{"kubepods.slice", "systemd"}, {"kubelet.slice/kubelet-kubepods.slice", "systemd"},
	{"kubepods", "cgroupfs"}, {"kubelet/kubepods", "cgroupfs"},
}

// podsDir returns the folder of all pods, "" if there is none.
func (n *node) podsDir(m *mount) string {
	for _, p := range podsDirs {
		if dir := path.Join(m.dir, p.dir); n.exists(dir) {
			return dir
		}
	}
	return ""
}

// part reports whether a mount shows only a part of the tree. For a process in its own cgroup
// namespace, the root has one "/.." for each level of the namespace; every v2 cgroup except the
// root has the file cgroup.type.
func (m *mount) part(n *node) bool {
	return strings.Trim(m.root, "/.") != "" || m.v2() && n.exists(path.Join(m.dir, "cgroup.type"))
}

// namespace reports whether this process is in the host's cgroup namespace, whose inode number
// is fixed (PROC_CGROUP_INIT_INO, include/linux/proc_ns.h).
func (n *node) namespace() Finding {
	switch link, err := fs.ReadLink(n.Host, "proc/self/ns/cgroup"); {
	case err != nil:
		return note("namespace", "which cgroup namespace this is can't be read", "run sluice doctor on the node itself")
	case link == "cgroup:[4026531835]":
		return ok("namespace", "the host's")
	}
	return note("namespace", "not the host's: paths of cgroups differ from those that the runtime names",
		"run Sluice on the node itself, or in a pod that has the host's /sys/fs/cgroup mounted")
}

func (n *node) driver() Finding {
	driver, from := "", ""
	for _, p := range podsDirs {
		for i := range n.mounts {
			m := &n.mounts[i]
			if dir := path.Join(m.dir, p.dir); m.kind != "resctrl" && driver == "" && n.exists(dir) {
				driver, from = p.driver, "/"+dir
			}
		}
	}
	if driver == "" && n.kubelet.config.CgroupDriver != "" {
		driver, from = n.kubelet.config.CgroupDriver, n.kubelet.config.From()
	}
	switch {
	case driver == "":
		return note("driver", "not known: there are no pods' cgroups yet", "start the kubelet, and run sluice doctor again")
	case driver == "systemd":
		return ok("driver", "systemd ("+from+"); Sluice repairs within driftInterval what a daemon-reload resets")
	case n.text("proc/1/comm") == "systemd" && n.controllerV2("cpu"):
		return warn("driver", "cgroupfs ("+from+") beside systemd on cgroup v2: two managers of one tree", "set cgroupDriver: systemd in the kubelet's configuration, and SystemdCgroup = true in the runtime's")
	}
	return ok("driver", driver+" ("+from+")")
}

func (n *node) partitions() Finding {
	const name = "cpuset partitions"
	m := n.hierarchy("cpuset")
	if m == nil || !m.v2() {
		return ok(name, "not available (cgroup v2); Sluice does not need it")
	}
	has := func(file string) bool { // the root cgroup has no such file
		found, err := fs.Glob(n.Host, path.Join(m.dir, "*", file))
		return err == nil && len(found) > 0
	}
	switch {
	case has("cpuset.cpus.exclusive"):
		return ok(name, "available, remote ones as well (cpuset.cpus.exclusive); Sluice does not need them")
	case has("cpuset.cpus.partition"):
		return ok(name, "available, local ones only (cpuset.cpus.exclusive: Linux 6.7); Sluice does not need them")
	}
	return ok(name, "not available (Linux 5.0); Sluice does not need it")
}
