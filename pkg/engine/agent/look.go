package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// lookInterval is how often other managers of CPUs are looked for.
const lookInterval = 30 * time.Second

// lookAround looks now and then for who else on this node sets CPUs. It reads all
// of /proc, so the loop does not wait for it.
func (a *Agent) lookAround(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookInterval):
		}
		found, err := peers.Detect(a.Host)
		record := grantrecord.Find(a.Host)
		a.do("neighbours", func() error { //nolint:errcheck // only a closed agent fails it
			a.meet(found, err)
			a.setUpRDT() // who has gone may have kept Sluice from it
			a.grants.Follow(record)
			return nil
		})
	}
}

// meet takes note of who else sets CPUs.
func (a *Agent) meet(found []peers.Neighbour, err error) {
	if before := a.unseen; err != nil && (before == nil || before.Error() != err.Error()) {
		a.Log.WithError(err).Warn("Other resource managers could not be looked for: those known before count as still there")
	}
	if a.unseen = err; err != nil {
		for _, n := range a.neighbours {
			if !slices.ContainsFunc(found, func(f peers.Neighbour) bool { return f.Kind == n.Kind }) {
				found = append(found, n)
			}
		}
	}
	for _, n := range found {
		if a.neighbour(n.Kind) == nil {
			a.Log.WithField("evidence", n.Evidence).Warnf("%s: %s. %s", n.Kind, n.Response, n.Fix)
		}
	}
	a.neighbours = found
	a.Node.BurstLoop = a.authority().Acts(a.Config.Control.Burst.Mode)
	a.ledger.SetExternal(a.external())
}

// lookAtForeign notes the CPUs of a container whose cpuset the kubelet sets, for the
// status.
func (a *Agent) lookAtForeign(c *container) {
	if !a.authority().Foreign || !c.started || !a.reaches(c) {
		c.foreign = nil
		return
	}
	value, err := a.Kernel.Read(c.path, knobs.CPUs)
	if err != nil {
		c.foreign = nil
		return
	}
	if cpus := cpuset.Set(value.(knobs.CPUSet)); c.foreign == nil || *c.foreign != cpus {
		c.foreign = &cpus
	}
}

// lookAtParent finds the CPUs that no pod can have, since the cgroup that holds all pods
// lacks them: no set below it may name them on v1, nor has an effect on v2.
func (a *Agent) lookAtParent() {
	dir := a.allPods()
	if dir == "" || a.Kernel == nil {
		return
	}
	value, err := a.Kernel.Read(dir, knobs.CPUs)
	if err != nil {
		return // nothing can be set there, which is told where it is tried
	}
	set, _ := value.(knobs.CPUSet)
	barred := cpuset.Set{}
	if has := cpuset.Set(set); !has.IsEmpty() {
		barred = cpuset.Difference(a.ledger.Machine().Online, has)
	}
	if barred == a.barred && dir == a.barredIn {
		return
	}
	if barred != a.barred {
		a.Log.WithFields(logrus.Fields{"cgroup": dir, "cpus": barred.String()}).Warn("The cgroup of all pods lacks CPUs of this machine (AllowedCPUs= of its slice, or of one above?): no container is placed on them")
	}
	a.barred, a.barredIn = barred, dir
	a.ledger.Bar(barred)
}

// usable is the CPUs that containers can have.
func (a *Agent) usable() cpuset.Set {
	return cpuset.Difference(a.ledger.Machine().Online, a.barred)
}

// external is the CPUs that the kubelet's static CPU manager gave away.
func (a *Agent) external() cpuset.Set {
	var cpus cpuset.Set
	if n := a.neighbour(peers.CPUManager); n != nil {
		for _, pin := range n.Pins {
			cpus = cpuset.Union(cpus, pin.CPUs)
		}
	}
	return cpus
}

// mayPin refuses pins where they can't be kept.
func (a *Agent) mayPin(c *container, r workload.Request) error {
	if !r.Class.Pinned() {
		return nil
	}
	if n := a.neighbour(peers.CPUManager); n != nil {
		return fmt.Errorf("class %s needs CPUs of its own, but %s: %s", r.Class, n.Response, n.Fix)
	}
	if c.uncontrolled {
		return fmt.Errorf("class %s can't be kept inside a virtual machine (runtime handler %q): use LS or BE, or another runtime class", r.Class, c.pod.RuntimeHandler)
	}
	return nil
}

// facts is what a request's meaning depends on. They are counted once for a
// machine: every container asks for them.
func (a *Agent) facts() annotation.Facts {
	if m := a.ledger.Machine(); m != a.factsOf {
		a.factsOf = m
		a.machineFacts = annotation.Facts{ThreadsPerCore: m.ThreadsPerCore()}
	}
	a.machineFacts.Memory = a.memory()
	return a.machineFacts
}

// findMemory has the containers of the first synchronization, which comes before the first
// look, measured by the memory that the kubelet scores them by.
func (a *Agent) findMemory() {
	total, err := sysfs.Memory(a.Host)
	if err != nil {
		a.Log.WithError(err).Warn("The machine's memory can't be read: until the control loop's first look it is what the NUMA nodes have together")
	}
	a.loop.view.MachineMemory = total
}

// memory is the machine's, in bytes: MemTotal of /proc/meminfo at the last look, since a
// hypervisor may change it at any time; where it isn't known, what its NUMA nodes had
// together.
func (a *Agent) memory() int64 {
	m := a.ledger.Machine()
	return cmp.Or(a.loop.view.MachineMemory, m.Memory(m.MemoryNodes()))
}

// widen lets the cgroups above a container have the CPUs that went and came
// back: v1 leaves them out, of a pod too that had no container then.
func (a *Agent) widen(c *container) {
	if a.returned.IsEmpty() || !a.reaches(c) || !a.authority().Cpusets {
		return
	}
	if err := a.Kernel.GiveBack(path.Dir(c.path), a.returned); err != nil {
		a.Log.WithError(err).WithField("container", c.ref).WithField("cpus", a.returned.String()).Warn("CPUs came back, and a cgroup does not get them again")
	}
}

// SetMachine moves everything to a machine with other CPUs or memory nodes.
func (a *Agent) SetMachine(m *topology.Machine) {
	a.do("hotplug", func() error { //nolint:errcheck // only a closed agent fails it
		old := a.ledger.Machine()
		a.ledger.SetMachine(m)
		a.Log.WithField("online", m.Online.String()).WithField("was", old.Online.String()).Info("The machine changed")
		a.returned = cpuset.Intersect(cpuset.Union(a.returned, cpuset.Difference(m.Online, old.Online)), m.Online)
		for _, c := range a.order {
			a.widen(c)
			// v1 took CPUs out of every set, of those that nobody has touched too.
			if c.started && a.reaches(c) && (c.touched || !a.returned.IsEmpty()) {
				a.observe(c, knobs.CPUs, knobs.Mems)
			}
		}
		a.settled = 0
		a.settle("") //nolint:errcheck // what failed is in the log and is tried again
		a.mend()
		if !cpuset.Difference(old.Online, m.Online).IsEmpty() {
			a.unplugged = a.now().Add(rejoinTime)
			a.rejoinAll()
		}
		a.liftAll()
		a.quiet()
		return nil
	})
}

// rejoinTime is how long after CPUs went offline processes are looked for outside
// their cpusets: the kernel moves them in a work queue, at any time after the event.
const rejoinTime = time.Minute

// rejoinAll puts processes back into their containers' cpusets.
func (a *Agent) rejoinAll() {
	for _, c := range a.order {
		if !c.started || !a.reaches(c) || !a.authority().Cpusets {
			continue
		}
		log := a.Log.WithField("container", c.ref)
		moved, err := a.Kernel.Rejoin(c.path)
		if moved > 0 {
			log.WithField("processes", moved).Warn("CPUs went offline, and the kernel took processes out of their container's cpuset: they are back in it")
		}
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			log.WithError(err).Error("Processes that the kernel took out of their container's cpuset can't be put back: they may run on all CPUs of their pod; the next pass tries again")
		}
	}
}
