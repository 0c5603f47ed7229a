package peers

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// processes are the host's processes that matter here.
type processes struct {
	kubelet int             // 0 if no process is the kubelet
	args    []string        // the kubelet's arguments
	agents  map[Kind]string // the first process of each known resource agent
}

// findProcesses looks through all processes once. It ignores those that end meanwhile.
func findProcesses(host fs.FS) (processes, error) {
	found := processes{agents: map[Kind]string{}}
	entries, err := fs.ReadDir(host, "proc")
	if err != nil {
		return found, fmt.Errorf("looking for other resource agents: %w", err)
	}
	memory := make([]byte, 4096) // a path is no longer
	for _, e := range entries {
		pid := e.Name()
		id, err := strconv.Atoi(pid)
		if err != nil {
			continue
		}
		name := strings.TrimSpace(string(begin(host, path.Join("proc", pid, "comm"), memory)))
		kind, ok := agentKind(name, begin(host, path.Join("proc", pid, "cmdline"), memory))
		switch {
		case name == kubeletName && found.kubelet == 0 && !inPod(host, pid) && privileged(host, pid):
			if cmdline, err := fs.ReadFile(host, path.Join("proc", pid, "cmdline")); err == nil {
				found.kubelet, found.args = id, strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
			}
		case ok && found.agents[kind] == "" && privileged(host, pid):
			found.agents[kind] = pid
		}
	}
	return found, nil
}

// begin reads the beginning of a file into memory, with one read; it is empty if that fails. Of a
// node's many processes, fs.ReadFile would leave megabytes of garbage.
func begin(host fs.FS, name string, memory []byte) []byte {
	f, err := host.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()        //nolint:errcheck // the file was opened for reading
	n, _ := f.Read(memory) // 0 for a process that has just ended
	return memory[:n]
}

// neighbours describes the running resource agents.
func (p *processes) neighbours() []Neighbour {
	var found []Neighbour
	for _, kind := range []Kind{Koordlet, Katalyst} {
		if pid := p.agents[kind]; pid != "" {
			found = append(found, Neighbour{
				Kind:     kind,
				Owns:     "CPU sets, quotas, weights and memory settings of the pods it manages",
				Evidence: fmt.Sprintf("process %s is a privileged %s", pid, kind),
				Response: "Sluice starts in preview: it decides and reports, and writes nothing",
				Fix:      fmt.Sprintf("keep %s off this node (its DaemonSet's node selector), or tell Sluice in its config to write beside it", kind),
			})
		}
	}
	return found
}

// agentKind returns the agent that a process is, by its comm (which the kernel cuts at 15
// bytes; both names fit) or by the base name of its first argument.
func agentKind(comm string, cmdline []byte) (Kind, bool) {
	arg0, _, _ := bytes.Cut(cmdline, []byte{0})
	for _, kind := range []Kind{Koordlet, Katalyst} {
		if comm == string(kind) || path.Base(string(arg0)) == string(kind) {
			return kind, true
		}
	}
	return "", false
}

// privileged reports whether a process is the host's root with CAP_SYS_ADMIN, as both agents'
// DaemonSets run them. Any pod can name its process koordlet, but it must not be able to switch
// Sluice off. A process whose privileges can't be read counts as privileged.
func privileged(host fs.FS, pid string) bool {
	const capSysAdmin = 21 // linux/capability.h
	status, err := fs.ReadFile(host, path.Join("proc", pid, "status"))
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value) // Uid has the real, effective, saved and file system IDs
		switch {
		case key == "Uid" && len(fields) > 1 && fields[1] != "0":
			return false
		case key == "CapEff" && len(fields) > 0:
			caps, err := strconv.ParseUint(fields[0], 16, 64)
			return err != nil || caps>>capSysAdmin&1 == 1
		}
	}
	return true
}
