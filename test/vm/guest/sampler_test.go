package guest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// sampler reads all containers' cpusets all the time and records violations of the invariants. A
// container counts from the exec of its own program, which the kernel shows as its command line,
// until that process has ended. A pin's CPUs are those that it had both before and after the other
// container's set was read.
type sampler struct {
	kubepods string        // folder of the pods' cgroups
	log      func() string // returns the plugin's log
	stop     chan struct{}
	done     chan struct{}

	mu   sync.Mutex
	pins map[string]workload.Class // by container ID

	state      map[string]processState // by folder
	passes     int
	longest    time.Duration
	violations []string
}

func (n *node) sample() *sampler {
	s := &sampler{
		kubepods: filepath.Join("/sys/fs/cgroup", n.rt.CgroupRoot(), "kubepods"), log: n.sluice.Log,
		stop: make(chan struct{}), done: make(chan struct{}),
		pins: map[string]workload.Class{}, state: map[string]processState{},
	}
	go func() {
		defer close(s.done)
		for {
			select {
			case <-s.stop:
				return
			default:
				began := time.Now()
				s.pass()
				took := time.Since(began)
				s.longest = max(s.longest, took)
				s.passes++
				time.Sleep(3 * took) // all emulated CPUs share one of the host's, so three quarters of its time are for the rest
			}
		}
	}()
	return s
}

// pin adds a container that has CPUs of its own.
func (s *sampler) pin(id string, class workload.Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins[id] = class
}

// end stops the sampler and reports the violations.
func (s *sampler) end(n *node) {
	close(s.stop)
	<-s.done
	n.t.Logf("%d samples of all cpusets, the longest took %s: %d violations", s.passes, s.longest.Round(time.Millisecond), len(s.violations))
	for _, v := range s.violations[:min(3, len(s.violations))] {
		n.t.Error(v)
	}
}

func (s *sampler) pass() {
	s.mu.Lock()
	pins := maps.Clone(s.pins)
	s.mu.Unlock()
	var running []string
	for _, pattern := range []string{"pod*/*/", "*/pod*/*/"} {
		dirs, _ := filepath.Glob(filepath.Join(s.kubepods, pattern))
		for _, dir := range dirs {
			if s.runs(filepath.Clean(dir)) {
				running = append(running, filepath.Clean(dir))
			}
		}
	}
	held := map[string]cpuset.Set{}
	for _, dir := range running {
		if _, pinned := pins[filepath.Base(dir)]; pinned {
			held[dir], _ = effective(dir)
		}
	}
	for _, dir := range running {
		cpus, ok := effective(dir)
		if !ok {
			continue
		}
		switch {
		case cpus.IsEmpty() && process(dir) == executing:
			s.note("%s has no CPUs", dir)
		case pins[filepath.Base(dir)] == workload.LSE && !wholeCores(cpus) && process(dir) == executing:
			s.note("LSE %s has CPUs %s, which are not whole cores", dir, cpus)
		}
		for pin, before := range held {
			if pin == dir || !before.Overlaps(cpus) {
				continue
			}
			after, _ := effective(pin)
			if both := cpuset.Intersect(before, after); both.Overlaps(cpus) && process(pin) == executing && process(dir) == executing {
				s.note("%s %s has CPUs %s; %s has %s", pins[filepath.Base(pin)], pin, both, dir, cpus)
			}
		}
	}
}

func (s *sampler) note(format string, args ...any) {
	s.violations = append(s.violations, time.Now().Format(time.RFC3339Nano)+" "+fmt.Sprintf(format, args...)+"\nsluice's log until then:\n"+tail(s.log(), 40))
}

type processState int

const (
	nothing processState = iota // or the runtime's own process, before exec
	executing
	sandbox
)

// runs reports whether the container's program was executing at any time.
func (s *sampler) runs(dir string) bool {
	if s.state[dir] == nothing {
		s.state[dir] = process(dir)
	}
	return s.state[dir] == executing
}

// process says what runs in a container's cgroup.
func process(dir string) processState {
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(procs)) {
		command, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		switch args := string(command); {
		case args == "/probe\x00sleep\x00":
			return sandbox
		case strings.HasPrefix(args, "/probe\x00"):
			return executing
		}
	}
	return nothing
}

// effective returns a cgroup's CPUs; ok is false if the cgroup is gone.
func effective(dir string) (cpus cpuset.Set, ok bool) {
	text, err := os.ReadFile(filepath.Join(dir, "cpuset.cpus.effective"))
	if err != nil {
		return cpus, false
	}
	cpus, err = cpuset.Parse(string(text))
	return cpus, err == nil
}
