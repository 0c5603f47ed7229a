package agent

import (
	"path"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// settle lets the node come to rest after a fault: in the end a pass and some steps under an unchanged
// load write nothing, and all settings are made.
func (f *faultNode) settle() {
	f.t.Helper()
	if f.denied {
		f.sleep(5 * time.Minute) // what passes for the plugin's own cgroup is tried again
		f.denied = false
	}
	const rounds = 40
	for i := range rounds {
		f.steps(2 * time.Second)
		f.spy.took()
		f.steps(2 * time.Second)
		f.pass()
		if f.spy.took() == 0 {
			if f.problem() == "" {
				f.spy.refused = nil // what was refused before this
				return
			}
			f.sleep(5 * time.Minute) // a refused value is tried again
		}
		if i == rounds-1 {
			f.t.Fatalf("the node does not come to rest: the last write is %s; %s", f.spy.last, f.problem())
		}
	}
}

// problem is a setting that is not made; "" if there is none.
func (f *faultNode) problem() string {
	s, err := f.agent.Status()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range s.Containers {
		dir := f.specs[c.ID].CgroupsPath
		if f.garbled[dir] || f.garbled[path.Dir(dir)] {
			continue // a lost original of a pod's quota bounds its containers' on cgroup v1
		}
		for _, k := range c.Settings {
			// Below a pod of low priority, openEuler changes no container's.
			if k.Problem != "" && !strings.Contains(k.Problem, "left alone") && k.Knob != knobs.CPUQoS.String() {
				return c.ID + " " + k.Knob + ": " + k.Problem
			}
		}
	}
	return ""
}

// sets returns the CPUs that the kernel lets containers run on.
func (f *faultNode) sets() map[string]cpuset.Set {
	all := map[string]cpuset.Set{}
	for name, s := range f.specs {
		file := "cpuset.cpus"
		if f.V2 {
			file = "cpuset.cpus.effective"
		}
		if text, err := f.ReadFile(s.CgroupsPath, file); err == nil {
			all[name], _ = cpuset.Parse(text)
		}
	}
	return all
}

// check checks what must hold after every fault.
func (f *faultNode) check(seen *reader, pins map[string]cpuset.Set) {
	f.t.Helper()
	if f.log.count("panic") > 0 {
		f.t.Fatalf("panic:\n%s", f.log.text.String())
	}
	seen.read(f.t, f.agent)
	s, sets := seen.last, f.sets()
	for name, set := range sets {
		if set.IsEmpty() || !set.SubsetOf(f.online) {
			f.t.Errorf("%s is on %q, online are %s", name, set, f.online)
		}
	}
	for _, pin := range s.Containers {
		if !pin.Class.Pinned() || pin.Pool != "" || pin.State != placement.Held {
			continue
		}
		if sets[pin.ID] != pin.CPUs {
			f.t.Errorf("pin %s is on %s, and has %s", pin.ID, sets[pin.ID], pin.CPUs)
		}
		for name, set := range sets {
			if name != pin.ID && set.Overlaps(pin.CPUs) {
				f.t.Errorf("%s on %s has CPUs of pin %s, %s", name, set, pin.ID, pin.CPUs)
			}
		}
		if was, had := pins[pin.ID]; had && !was.SubsetOf(pin.CPUs) && !was.Overlaps(f.unplugged) && !f.unpinned {
			f.t.Errorf("pin %s was on %s, and is on %s", pin.ID, was, pin.CPUs)
		}
	}
	f.unplugged, f.unpinned = cpuset.Set{}, false
	if len(s.Containers) != len(f.specs) {
		f.t.Errorf("the status has %d containers of %d", len(s.Containers), len(f.specs))
	}
	f.checkLimits()
	if len(f.spy.refused) > 0 {
		f.t.Errorf("refused while all is calm: %v", f.spy.refused)
	}
}

// checkLimits checks that no service is held below its limit, and batch work not below its floor.
func (f *faultNode) checkLimits() {
	for name, s := range f.specs {
		a := f.asks[name]
		for _, dir := range []string{s.CgroupsPath, path.Dir(s.CgroupsPath)} {
			v, err := f.spy.Read(dir, knobs.Quota)
			q, _ := v.(knobs.CPUQuota)
			if err != nil || q.Unlimited() || f.garbled[dir] {
				continue
			}
			if a.annotations["class.sluice.dev"] == "LS" && a.milli > 0 && q.Quota < colocation.Quota(workload.MilliCPU(a.milli)).Quota {
				f.t.Errorf("%s has %s, its limit is %d milli-CPU", dir, q, a.milli)
			}
			if q.Quota < time.Millisecond {
				f.t.Errorf("%s has %s", dir, q)
			}
		}
	}
}

// giveAllBack restores everything while no plugin runs. The kernel is then as that of a node without
// Sluice.
func (f *faultNode) giveAllBack() {
	f.t.Helper()
	book, err := journal.Read(f.o.Originals, "")
	if err != nil {
		f.tell("the journal: %v", err)
	}
	r, err := restore.Run(&restore.Host{Kernel: f.spy}, book, false)
	if err != nil && len(f.garbled) == 0 {
		f.t.Errorf("restore: %v", err)
	}
	f.unpinned = true
	f.tell("restored %d changes, newer %v", len(r.Changes), r.Newer)
	synctest.Wait()
	var bad []string
	for line := range strings.SplitSeq(differences(f.without.state(), f.state()), "\n") {
		if line != "" && !f.excused(line) {
			bad = append(bad, line)
		}
	}
	if len(bad) > 0 {
		f.t.Errorf("not as before:\n%s", strings.Join(bad, "\n"))
	}
}

// excused reports whether a difference is none of Sluice's making: the period of no quota, CPUs that the
// kernel took from a set, and what a garbled journal has lost.
func (f *faultNode) excused(line string) bool {
	return strings.Contains(line, "cpu.cfs_period_us") || f.hotplugged && strings.Contains(line, "/cpuset.cpus") || f.lost(line) || inherited(line)
}

// lost reports whether a difference is in a cgroup whose originals a garbled journal has lost.
func (f *faultNode) lost(line string) bool {
	file, _, _ := strings.Cut(line, ": ")
	_, dir, _ := strings.Cut(path.Dir(file), "/")
	return f.garbled["/"+dir] || f.garbled["/"+path.Dir(dir)]
}

// inherited reports whether a difference is in a file that a new cgroup copies from its parent, as some
// vendors' kernels do. A container that was made while its pod had Sluice's value, by a plugin that was
// killed before the start, keeps it.
func inherited(line string) bool {
	file, _, _ := strings.Cut(line, ": ")
	return strings.HasSuffix(path.Dir(file), "/c") && slices.ContainsFunc(
		[]string{"memory.wmark_min_adj", "cpu.qos_level", "cgroup.priority", "memory.qos_level", "net_cls.classid"},
		func(name string) bool { return name == path.Base(file) })
}
