package agent

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// family is the cgroups of pods, and the kubelet's of their QoS classes, below one parent.
// The kernel compares the weights of these, and of no others.
type family struct {
	batch   bool // one of them is batch work's
	members []member
}

// member is a cgroup of a family whose weight keeps its proportion to the others'.
type member struct {
	path    string
	percent int  // of the kubelet's weight, by the configuration
	class   bool // the kubelet's of Burstable or BestEffort pods, whose weight it writes each minute
}

// standing is how a pod competes for CPU time with what is beside it.
type standing int

const (
	serves  standing = iota // it keeps its proportion to all others that serve
	yielded                 // it isn't batch, and asked for the lowest priority
	batches                 // it is batch work, in all its containers
)

// standingOf is how a pod with these containers competes, and its weight in percent of the
// kubelet's.
func (a *Agent) standingOf(containers []*container) (s standing, percent int) {
	all, low, batch := 0, 0, 0
	for _, c := range containers {
		h, ok := a.ledger.Holder(c.ID)
		if !ok {
			continue
		}
		all++
		percent = max(percent, h.Request.Weight)
		if h.Request.Class == workload.BE {
			batch++
		}
		if id := h.Request.Identity; id.Set && id.Value < 0 {
			low++
		}
	}
	if percent == 0 {
		percent = 100
	}
	switch {
	case all == 0:
		return yielded, percent
	case batch == all:
		return batches, percent
	case low == all:
		return yielded, percent
	}
	return serves, percent
}

// ofPod are the pod's containers, also those whose own cgroups Sluice doesn't write: the
// pod's it does.
func (a *Agent) ofPod(pod *workload.Pod) []*container {
	return slices.DeleteFunc(slices.Clone(a.order), func(c *container) bool { return c.pod.UID != pod.UID })
}

// kin is the families of what runs here now.
func (a *Agent) kin() map[string]*family {
	l := &a.loop
	if l.families == nil || l.stale || l.looked != a.ledger.Version() {
		l.families = a.findFamilies()
	}
	return l.families
}

// findFamilies finds the cgroups that compete with each other, by their parents.
func (a *Agent) findFamilies() map[string]*family {
	families := map[string]*family{}
	of := func(parent string) *family {
		if families[parent] == nil {
			families[parent] = &family{}
		}
		return families[parent]
	}
	pods := map[string][]*container{} // by cgroup
	for _, c := range a.order {
		if c.podPath != "" {
			pods[c.podPath] = append(pods[c.podPath], c)
		}
	}
	holds := map[string]map[standing]bool{} // classes' cgroups
	for path, containers := range pods {
		if slices.ContainsFunc(containers, func(c *container) bool { return c.pod.UID != containers[0].pod.UID }) {
			continue // it is no pod's own
		}
		parent := colocation.Above(path)
		s, percent := a.standingOf(containers)
		f := of(parent)
		switch s {
		case batches:
			f.batch = true
		case serves:
			f.members = append(f.members, member{path: path, percent: percent})
		}
		if colocation.IsBestEffort(parent) || colocation.IsBurstable(parent) {
			if holds[parent] == nil {
				holds[parent] = map[standing]bool{}
			}
			holds[parent][s] = true
		}
	}
	for class, has := range holds {
		f := of(colocation.Above(class))
		if has[batches] && (colocation.IsBestEffort(class) || !has[serves]) {
			f.batch = true
		} else {
			f.members = append(f.members, member{path: class, percent: 100, class: true})
		}
	}
	return families
}

// favours reports whether weights are raised at all.
func (a *Agent) favours() bool {
	cfg := &a.Config.Control.Batch
	return a.Kernel != nil && a.authority().Acts(cfg.Mode) && a.Config.Pools.Mode != config.Exclusive && cfg.OnlineWeight > 100 && a.Node.Features.Has(knobs.Weight)
}

// reweigh decides by how much what isn't batch is raised, in each family.
func (a *Agent) reweigh() {
	l := &a.loop
	clear(l.want.favour)
	if !a.favours() {
		clear(l.favours)
		return
	}
	families := a.kin()
	now, v2 := a.now(), a.Node.Features.Knobs[knobs.Weight].V2
	for parent, f := range families {
		favour := l.favours[parent]
		if favour == nil {
			if !f.batch {
				continue
			}
			favour = &qos.Favour{}
			l.favours[parent] = favour
		}
		fits := cgroupfs.Room(0, v2)
		for _, m := range f.members {
			if shares, ok := a.ownWeight(m); ok {
				fits = min(fits, cgroupfs.Room(cgroupfs.Scale(shares, m.percent, v2), v2))
			}
		}
		if percent := favour.Step(now, a.Config.Control.Batch.OnlineWeight, fits, f.batch); percent > 100 {
			l.want.favour[parent] = percent
		} else if percent == 0 {
			delete(l.favours, parent)
		}
	}
	maps.DeleteFunc(l.favours, func(parent string, _ *qos.Favour) bool { return families[parent] == nil })
}

// ownWeight is the weight that the kubelet gave a cgroup. What it has written since Sluice
// did is newer than what is kept.
func (a *Agent) ownWeight(m member) (knobs.Shares, bool) {
	e, kept := a.book.Entry(m.path, knobs.Weight)
	if kept && e.Wrote != nil && !m.class {
		return e.Value.(knobs.Shares), true
	}
	value, err := a.Kernel.Read(m.path, knobs.Weight)
	if err != nil {
		return 0, false
	}
	if kept && e.Wrote != nil && a.Kernel.Same(knobs.Weight, e.Wrote, value) {
		value = e.Value
	}
	return value.(knobs.Shares), true
}

// reweighNow has weights follow what an event has changed, before the container that it is
// about runs.
func (a *Agent) reweighNow() {
	if !a.synced || !a.favours() {
		return
	}
	a.reweigh()
	a.intend(a.loop.want)
}

// keepClasses puts the weights of the kubelet's classes right, which it writes each minute:
// until then all pods in them have a fraction of what they are due.
func (a *Agent) keepClasses() {
	if !a.authority().Cgroups {
		return
	}
	changed := false
	families := a.kin()
	for parent := range a.loop.intents.favour {
		f := families[parent]
		if f == nil {
			continue
		}
		for _, m := range f.members {
			if m.class && a.reconciler.Recheck(reconcile.Key{Path: m.path, Knob: knobs.Weight}) {
				changed = true
			}
		}
	}
	if !changed {
		return
	}
	a.reweigh() // by the newer weights, which are in the book now
	a.reconciler.Apply()
	a.intend(a.loop.want)
}

// safeWeights gives back the weights that the kubelet gave, so that what starts while the
// plugin is away competes with the others as it is due.
func (a *Agent) safeWeights(changes []knobs.Change) []knobs.Change {
	for t := range a.reconciler.Cgroups() {
		for _, k := range t.Settings() {
			if k.Knob != knobs.Weight || k.Favour == 0 {
				continue
			}
			e, kept := a.book.Entry(t.Path, knobs.Weight)
			if !kept || e.Wrote == nil {
				continue
			}
			without := k.Setting
			without.Favour = 100
			to := reconcile.Target(&without, e.Value, a.Node.Features.Knobs[knobs.Weight].V2)
			changes = append(changes, knobs.Change{Object: t.Object, Knob: knobs.Weight, From: to, To: to, Why: "the loop is gone: the weight without its favour"})
		}
	}
	return changes
}
