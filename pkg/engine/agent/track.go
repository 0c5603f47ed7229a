package agent

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// track begins to keep a container; one of the same id is replaced.
func (a *Agent) track(pod *workload.Pod, spec workload.Container) *container {
	a.forget(spec.ID)
	pod = a.podOf(pod)
	c := &container{Container: spec, pod: pod, ref: workload.Ref(pod, &spec)}
	path, err := cgroupfs.ContainerPath(spec.CgroupsPath)
	if err != nil {
		a.Log.WithField("container", c.ref).WithError(err).Warn("Cgroup path not understood: the container is set through the runtime alone")
	}
	c.path, c.podRef = path, pod.Namespace+"/"+pod.Name
	if o, ok := podObject(pod); ok {
		c.podPath, c.above = o.Path, colocation.Above(o.Path)
	}
	c.uncontrolled = a.Config.RunsInVM(pod)
	c.started = spec.State == workload.Running
	c.ran = c.started
	c.keepQuota()
	a.containers[spec.ID] = c
	if path != "" {
		a.byPath[path] = c
	}
	a.order = append(a.order, c)
	a.loop.stale = true
	return c
}

// keepQuota notes the quota to go back to once the container's is lifted.
func (c *container) keepQuota() {
	if r := c.Resources; r.Quota > 0 && r.Period > 0 {
		c.quota = knobs.CPUQuota{Quota: time.Duration(r.Quota) * time.Microsecond, Period: time.Duration(r.Period) * time.Microsecond}
	}
}

// forget ends the keeping of a container.
func (a *Agent) forget(id string) {
	c, ok := a.containers[id]
	if !ok {
		return
	}
	delete(a.containers, id)
	a.leavePod(c.pod)
	if a.byPath[c.path] == c {
		delete(a.byPath, c.path)
	}
	a.loop.stale = true
	a.reconciler.Forget(c.path)
	if a.Kernel != nil {
		a.Kernel.Forget(c.path)
	}
	a.order = slices.DeleteFunc(a.order, func(other *container) bool { return other == c })
}

func (c *container) identity() placement.Identity {
	return placement.Identity{ID: c.ID, Pod: c.pod.UID, Container: c.Name, Ref: c.ref}
}

// request reads what the container asks for.
func (a *Agent) request(cfg *config.Config, c *container) (workload.Request, error) {
	facts := a.facts()
	c.granted = a.granted(c)
	facts.Granted = c.granted
	r, warnings, err := cfg.Request(facts, c.pod, &c.Container)
	a.tellCut(c, warnings)
	c.warnings = c.warnings[:0]
	for _, w := range warnings {
		c.warnings = append(c.warnings, w.Text)
	}
	if text := c.refused.warning(); text != "" {
		c.warnings = append(c.warnings, text)
	}
	if err != nil {
		return r, err
	}
	if c.scored && !c.granted.Container && r.OOMScore.Set && r.OOMScore.Value == c.OOMScoreAdj && c.pod.QoS() == workload.Burstable {
		r.Memory = 0 // unknown: it was inferred from Sluice's own score
	}
	if a.neighbour(peers.MemoryManager) != nil {
		r.MemoryNodes = workload.MemoryNodes{Policy: workload.MemoryAny}
	}
	if r.Near.OwnDevices {
		a.findDevices(c, &r)
	}
	return r, nil
}

// findDevices looks up which CPUs are local to the devices the container was given.
func (a *Agent) findDevices(c *container, r *workload.Request) {
	for _, d := range c.Devices {
		address, err := sysfs.DeviceAddress(a.Host, d.Block, d.Major, d.Minor)
		if err != nil {
			continue // no PCI device: /dev/null and the like
		}
		for i := range a.ledger.Machine().Devices {
			if device := &a.ledger.Machine().Devices[i]; device.Address == address {
				r.Near.CPUs = cpuset.Union(r.Near.CPUs, device.CPUs)
			}
		}
	}
	if r.Near.CPUs.IsEmpty() {
		c.warnings = append(c.warnings, "near device: none of the container's devices is a PCI device, so it is placed without")
	}
}

// settings is an assignment as the runtime is told it. A container that once had
// a cpuset is told all CPUs by number: the runtime knows no "as the parent".
func (a *Agent) settings(c *container, as placement.Assignment) Settings {
	if c.uncontrolled {
		return Settings{}
	}
	if a.authority().Foreign {
		return Settings{Carried: c.carried}
	}
	s := Settings{CPUs: as.CPUs, Mems: as.Mems, Unlimited: as.Unlimited, Carried: c.carried}
	if c.touched && s.CPUs.IsEmpty() {
		s.CPUs = a.usable()
	}
	if c.touched && s.Mems.IsEmpty() && !c.recorded.Mems.IsEmpty() {
		s.Mems = a.ledger.Machine().MemoryNodes()
	}
	return s
}

// object names the container's cgroup.
func (c *container) object() knobs.Object {
	return knobs.Object{Path: c.path, Name: c.ref, Level: knobs.ContainerLevel}
}

// changes brings the container's cgroup to want. all repeats what it has already.
func (c *container) changes(want placement.Assignment, all bool) []knobs.Change {
	var changes []knobs.Change
	set := func(knob knobs.Knob, from, to knobs.Value) {
		changes = append(changes, knobs.Change{Object: c.object(), Knob: knob, From: from, To: to, Why: want.Why})
	}
	repeat := all && c.touched
	if want.CPUs != c.has.CPUs || repeat || all && !want.CPUs.IsEmpty() {
		set(knobs.CPUs, knobs.CPUSet(c.has.CPUs), knobs.CPUSet(want.CPUs))
	}
	if want.Mems != c.has.Mems || all && !want.Mems.IsEmpty() {
		set(knobs.Mems, knobs.CPUSet(c.has.Mems), knobs.CPUSet(want.Mems))
	}
	switch {
	case want.Unlimited && (!c.has.Unlimited || all):
		set(knobs.Quota, nil, unlimited)
	case c.has.Unlimited && !want.Unlimited && c.quota.Quota > 0:
		set(knobs.Quota, unlimited, c.quota)
	}
	return changes
}
