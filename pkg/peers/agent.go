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

// Search finds the kubelet and other agents again and again. Few of a node's thousands of processes are new
// each time, and only a new process is about to become something else by exec(2). So a search leaves out processes
// that two earlier ones have looked at, except that each twentieth looks at all.
type Search struct {
	Host fs.FS

	searches       int
	before, looked map[int]uint8 // how often each process has been looked at, without kubelets and agents
}

const (
	enoughLooks  = 2
	allProcesses = 20
)

// findProcesses looks for processes that matter, and ignores those that end meanwhile. It returns what it found
// together with the error.
func (s *Search) findProcesses() (processes, error) {
	found := processes{agents: map[Kind]string{}}
	entries, err := fs.ReadDir(s.Host, "proc")
	if err != nil {
		err = fmt.Errorf("looking for other resource agents: %w", err)
	}
	if s.searches%allProcesses == 0 {
		s.before, s.looked = map[int]uint8{}, map[int]uint8{}
	}
	s.searches++
	s.before, s.looked = s.looked, s.before
	clear(s.looked)
	var comm, cmdline bytes.Buffer // reused: of many processes, fs.ReadFile would leave megabytes of garbage
	for _, e := range entries {
		pid := e.Name()
		id, notPID := strconv.Atoi(pid)
		if notPID != nil {
			continue
		}
		looks := s.before[id]
		if looks == enoughLooks {
			s.looked[id] = looks
			continue
		}
		read(s.Host, path.Join("proc", pid, "comm"), &comm) //nolint:errcheck // it is empty then
		ended := read(s.Host, path.Join("proc", pid, "cmdline"), &cmdline)
		name := strings.TrimSpace(comm.String())
		if name == kubeletName && found.kubelet == 0 && ended == nil && !inPod(s.Host, pid) && privileged(s.Host, pid) {
			found.kubelet, found.args = id, strings.Split(strings.TrimRight(cmdline.String(), "\x00"), "\x00")
		}
		kind, agent := agentKind(name, cmdline.Bytes())
		if agent && found.agents[kind] == "" && privileged(s.Host, pid) {
			found.agents[kind] = pid
		}
		if !agent && name != kubeletName && ended == nil {
			s.looked[id] = looks + 1
		}
	}
	return found, err
}

// read replaces the content of the buffer by that of a file; it is empty if the file can't be opened.
func read(host fs.FS, name string, into *bytes.Buffer) error {
	into.Reset()
	f, err := host.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // the file was opened for reading
	_, err = into.ReadFrom(f)
	return err
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
