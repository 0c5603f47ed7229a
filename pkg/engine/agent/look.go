package agent

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
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
			a.Grants.Follow(record)
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
		for _, n := range a.Neighbours {
			if !slices.ContainsFunc(found, func(f peers.Neighbour) bool { return f.Kind == n.Kind }) {
				found = append(found, n)
			}
		}
	}
	for _, n := range found {
		if a.Neighbour(n.Kind) == nil {
			a.Log.WithField("evidence", n.Evidence).Warnf("%s: %s. %s", n.Kind, n.Response, n.Fix)
		}
	}
	a.Neighbours = found
	a.QoS.BurstLoop = a.Authority().Acts(a.Config.Control.Burst.Mode)
	a.Ledger.SetExternal(a.External())
}

// lookAtForeign notes the CPUs of a container whose cpuset the kubelet sets, for the
// status.
func (a *Agent) lookAtForeign(c *node.Container) {
	if !a.Authority().Foreign || !c.Started || !a.Reaches(c) {
		c.Foreign = nil
		return
	}
	value, err := a.Kernel.Read(c.Path, knobs.CPUs)
	if err != nil {
		c.Foreign = nil
		return
	}
	if cpus := cpuset.Set(value.(knobs.CPUSet)); c.Foreign == nil || *c.Foreign != cpus {
		c.Foreign = &cpus
	}
}

// widen lets the cgroups above a container have the CPUs that went and came
// back: v1 leaves them out, of a pod too that had no container then.
func (a *Agent) widen(c *node.Container) {
	if a.returned.IsEmpty() || !a.Reaches(c) || !a.Authority().Cpusets {
		return
	}
	if err := a.Kernel.GiveBack(path.Dir(c.Path), a.returned); err != nil {
		a.Log.WithError(err).WithField("container", c.Ref).WithField("cpus", a.returned.String()).Warn("CPUs came back, and a cgroup does not get them again")
	}
}

// SetMachine moves everything to a machine with other CPUs or memory nodes.
func (a *Agent) SetMachine(m *topology.Machine) {
	a.do("hotplug", func() error { //nolint:errcheck // only a closed agent fails it
		old := a.Ledger.Machine()
		a.Ledger.SetMachine(m)
		a.Log.WithField("online", m.Online.String()).WithField("was", old.Online.String()).Info("The machine changed")
		a.returned = cpuset.Intersect(cpuset.Union(a.returned, cpuset.Difference(m.Online, old.Online)), m.Online)
		for _, c := range a.Order {
			a.widen(c)
			// v1 took CPUs out of every set, of those that nobody has touched too.
			if c.Started && a.Reaches(c) && (c.Touched || !a.returned.IsEmpty()) {
				a.observe(c, knobs.CPUs, knobs.Mems)
			}
		}
		a.settled = 0
		a.settle("") //nolint:errcheck // what failed is in the log and is tried again
		a.mend()
		if !cpuset.Difference(old.Online, m.Online).IsEmpty() {
			a.unplugged = a.Now().Add(rejoinTime)
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
	for _, c := range a.Order {
		if !c.Started || !a.Reaches(c) || !a.Authority().Cpusets {
			continue
		}
		log := a.Log.WithField("container", c.Ref)
		moved, err := a.Kernel.Rejoin(c.Path)
		if moved > 0 {
			log.WithField("processes", moved).Warn("CPUs went offline, and the kernel took processes out of their container's cpuset: they are back in it")
		}
		if err != nil && !errors.Is(err, cgroupfs.ErrGone) {
			log.WithError(err).Error("Processes that the kernel took out of their container's cpuset can't be put back: they may run on all CPUs of their pod; the next pass tries again")
		}
	}
}
