package doctor

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// process is a process on the node.
type process struct {
	id, parent int
	name       string     // the kernel truncates it to 15 bytes
	allowed    cpuset.Set // CPUs that its first thread may run on

	capabilities uint64 // effective capabilities; 0 if unknown
}

const kthreadd = 2 // the parent of all kernel threads

func (p *process) kernel() bool { return p.id == kthreadd || p.parent == kthreadd }

// lacks returns which of the capabilities a process does not have; none if the process is nil or nothing is known of it.
func (p *process) lacks(capabilities ...string) (missing []string) {
	if p == nil || p.capabilities == 0 {
		return nil
	}
	bits := map[string]int{"CAP_NET_ADMIN": 12, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYS_RESOURCE": 24, "CAP_PERFMON": 38} // linux/capability.h
	for _, c := range capabilities {
		if p.capabilities>>bits[c]&1 == 0 {
			missing = append(missing, c)
		}
	}
	return missing
}

// readProcesses lists the processes, without those that end meanwhile.
func (n *node) readProcesses() []process {
	var found []process
	for _, name := range n.names("proc") {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := parseStatus(n.text(path.Join("proc", name, "status"))); ok {
			p.id = id
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.id - b.id })
	return found
}

// parseStatus reads /proc/<pid>/status (proc(5)).
func parseStatus(text string) (p process, ok bool) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		var err error
		switch key {
		case "Name":
			p.name = value
		case "PPid":
			p.parent, err = strconv.Atoi(value)
		case "CapEff":
			p.capabilities, err = strconv.ParseUint(value, 16, 64)
		case "Cpus_allowed_list":
			p.allowed, err = cpuset.Parse(value)
		}
		if err != nil {
			return process{}, false
		}
	}
	return p, p.name != ""
}

// named returns the host's first process with that name, nil if there is none. It ignores pods'
// processes: otherwise any pod that names a process kubelet could make Sluice read files.
func (n *node) named(name string) *process {
	i := slices.IndexFunc(n.processes, func(p process) bool { return p.name == name && !n.inPod(&p, nil) })
	if i < 0 {
		return nil
	}
	return &n.processes[i]
}

// arguments returns the words of a process' command line.
func (n *node) arguments(p *process) []string {
	text := n.text(path.Join("proc", strconv.Itoa(p.id), "cmdline"))
	return strings.Split(strings.TrimRight(text, "\x00"), "\x00")
}

// inPod reports whether a process is in a pod's cgroup: below the kubelet's folder of pods, or
// beside a container that the plugin manages.
func (n *node) inPod(p *process, parents []string) bool {
	text := n.text(path.Join("proc", strconv.Itoa(p.id), "cgroup"))
	return strings.Contains(text, "kubepods") || slices.ContainsFunc(parents, func(dir string) bool {
		return strings.Contains(text, ":"+dir+"/")
	})
}
