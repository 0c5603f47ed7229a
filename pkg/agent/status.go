package agent

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/plan"
	"github.com/sluice-dev/sluice/pkg/policy"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// shown is the last snapshot.
type shown struct {
	status *status.Status
	at     time.Time
	moves  uint64
}

// sharedFor is how long readers share one snapshot, if nothing happens meanwhile: what
// a caller has seen happen is in what it reads then.
const sharedFor = 100 * time.Millisecond

// Status is a copy of the state, made in the loop. It must not be changed: other
// readers may have the same one.
func (a *Agent) Status() (s *status.Status, err error) {
	err = a.query("status", func() error {
		now := a.now()
		if age := now.Sub(a.shown.at); a.shown.status == nil || a.shown.moves != a.moves || age < 0 || age >= sharedFor {
			a.shown = shown{a.snapshot(), now, a.moves}
		}
		s = a.shown.status
		return nil
	})
	return s, err
}

func (a *Agent) snapshot() *status.Status {
	mode, reason := a.mode()
	if a.leavesCpusets() && reason == "" {
		reason = "cpusets are the kubelet's: its static CPU manager is on"
	}
	s := &status.Status{
		Schema:     status.Schema,
		Version:    a.Build.Version,
		Build:      a.Build,
		Started:    a.started,
		Config:     a.Configured,
		Time:       a.now(),
		Mode:       string(mode),
		Reason:     reason,
		Runtime:    a.runtime,
		Machine:    a.machineStatus(),
		Neighbours: slices.Clone(a.neighbours),
		Contested:  a.contested(),
		Counters:   a.counters,
		Features:   a.features,
		Handlers:   a.latencies.status(),
		Errors:     a.failedStatus(),
		Loop:       a.loopStatus(),
	}
	for i, p := range a.ledger.Pools() {
		s.Pools = append(s.Pools, status.Pool{Name: p.Name, CPUs: p.CPUs, Load: a.poolLoad(i)})
	}
	holders := a.ledger.Holders()
	s.Containers = make([]status.Container, 0, len(holders))
	for _, h := range holders {
		c := a.containers[h.ID]
		if c == nil {
			continue
		}
		entry := a.containerStatus(c, h)
		for i := range s.Pools {
			if s.Pools[i].Name == entry.Pool {
				s.Pools[i].Containers++
				s.Pools[i].Requested += h.Request.Milli
			}
		}
		s.Containers = append(s.Containers, entry)
	}
	return s
}

func (a *Agent) containerStatus(c *container, h *policy.Holder) status.Container {
	as, _ := a.ledger.Assignment(h.ID)
	return status.Container{
		ID:         h.ID,
		PodUID:     h.Pod,
		Ref:        h.Ref,
		Class:      h.Request.Class,
		Pool:       a.ledger.PoolOf(h),
		State:      h.State,
		Controlled: !c.uncontrolled && !a.leavesCpusets(),
		Requested:  h.Request.Milli,
		CPUs:       as.CPUs,
		Mems:       as.Mems,
		Unlimited:  as.Unlimited,
		Why:        as.Why,
		Settings:   h.Request.Settings, // made once, never changed
		Warnings:   slices.Clone(c.warnings),
		Cgroup:     c.path,
		Drift:      c.drift,
		Kernel:     a.kernelStatus(c),
		Lacks:      lacks(c),
		Cache:      a.cacheUse(c),
		Usage:      a.usageStatus(h.ID),
		Since:      h.Since,
	}
}

// kernelStatus is what the container and its pod have been given in the kernel.
func (a *Agent) kernelStatus(c *container) []status.Kernel {
	now := a.now()
	var all []status.Kernel
	add := func(level, path string) {
		t := a.tuned[path]
		if t == nil {
			return
		}
		all = slices.Grow(all, len(t.knobs))
		for _, k := range t.knobs {
			entry := status.Kernel{
				Level: level, Setting: k.Knob.String(), File: a.Node.Features.Knobs[k.Knob].File, Why: k.Why, Problem: k.problem,
				Drift: k.drift, Suspect: k.suspect, Contested: k.contest.often(now, fights()),
			}
			value := k.Value
			if e, kept := a.book.Entry(path, k.Knob); kept && e.Wrote != nil {
				value = e.Wrote
			}
			if k.shown != value {
				k.shown, k.text = value, ""
				if value != nil {
					k.text = value.String()
				}
			}
			entry.Value = k.text
			all = append(all, entry)
		}
	}
	add("container", c.path)
	if c.rdt != "" {
		all = append(all, status.Kernel{Level: "container", Setting: "resctrl group", Value: c.rdt, Why: rdtKey})
	}
	if pod, ok := podObject(c.pod); ok {
		add("pod", pod.Path)
	}
	return all
}

// cacheUse is what RDT counts of a container.
func (a *Agent) cacheUse(c *container) []status.Cache {
	if !a.usesRDT() || !a.Config.RDT.Monitor {
		return nil
	}
	usage, err := a.RDT.Usage(c.ID)
	if err != nil {
		return nil
	}
	var all []status.Cache
	for _, u := range usage {
		all = append(all, status.Cache{ID: u.ID, Occupancy: u.Occupancy, Total: u.Total, Local: u.Local})
	}
	return all
}

func lacks(c *container) []status.Lack {
	var all []status.Lack
	for _, n := range c.notes {
		all = append(all, status.Lack{Key: n.Key, Missing: n.Missing, Text: n.Text})
	}
	return all
}

// contested lists what somebody else keeps changing.
func (a *Agent) contested() []string {
	now := a.now()
	var all []string
	for _, c := range a.order {
		if c.contest.often(now, fights()) {
			all = append(all, plan.CPUs.String()+" of "+c.ref)
		}
	}
	for _, t := range a.tuned {
		for _, k := range t.knobs {
			if k.contest.often(now, fights()) {
				all = append(all, k.Knob.String()+" of "+t.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}

func (a *Agent) machineStatus() status.Machine {
	m := a.ledger.Machine()
	return status.Machine{
		Online: m.Online, Offline: m.Offline,
		Packages: len(m.Packages), Nodes: len(m.Nodes), L3s: len(m.L3s), Cores: len(m.Cores),
		Memory:   m.Memory(m.MemoryNodes()),
		Pinned:   a.ledger.Pinned(),
		Reserved: a.Config.Reserved, System: a.Config.System,
		External: a.external(),
		Steering: a.steering.status(),
	}
}

// Machine is the machine as the agent works with it.
func (a *Agent) Machine() (m *topology.Machine, err error) {
	err = a.query("topology", func() error {
		m = a.ledger.Machine()
		return nil
	})
	return m, err
}

// WhatIf answers what a pod's containers would get now, one after another, and
// changes nothing.
func (a *Agent) WhatIf(pod *workload.Pod, specs []workload.Container) (answers []status.Answer, err error) {
	err = a.query("plan", func() error {
		ask := func(spec *workload.Container) (workload.Request, []string, error) { return a.ask(pod, spec) }
		answers = status.WhatIf(a.ledger.Clone(), pod, specs, ask, a.now())
		return nil
	})
	return answers, err
}

// ask reads what a container that does not exist asks for.
func (a *Agent) ask(pod *workload.Pod, spec *workload.Container) (workload.Request, []string, error) {
	c := &container{Container: *spec, pod: pod, ref: workload.Ref(pod, spec), uncontrolled: a.Config.RunsInVM(pod)}
	r, err := a.request(c)
	if err == nil {
		err = a.mayPin(c, r)
	}
	return r, c.warnings, err
}
