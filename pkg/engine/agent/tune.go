package agent

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// tuned is a cgroup with settings of Sluice's besides CPUs and memory nodes.
type tuned struct {
	knobs.Object
	pod   string // UID; "" above the pods
	knobs []*knob
}

// knob is one setting of a cgroup.
type knob struct {
	qos.Setting
	withdrawn bool        // given back for the time of a resize
	problem   string      // why the kernel doesn't have it; "" where it has
	shown     knobs.Value // in the last status, as text; nil not yet
	text      string
	before    knobs.Value // what Sluice wrote before it wrote last; nil nothing
	drift     int
	suspect   string // who is likely to have changed it last
	contest   backoff
}

// tune brings the cgroups of a pod and of its containers to what they ask for,
// by what the kernel shows, and gives back what is asked for no more. In preview it
// notes what it would do.
func (a *Agent) tune(pod *workload.Pod) {
	if a.Kernel == nil {
		return
	}
	a.change(append(a.tunePod(pod), a.tuneParents()...))
	if object, ok := podObject(pod); ok && a.tuned[object.Path] == nil {
		a.Kernel.Forget(object.Path) // it may end without another look at it
	}
}

// tunePod counts containers that are created and have not started for the pod, so
// that it has room for them when the runtime makes their cgroups: v1 refuses a
// quota above the pod's.
func (a *Agent) tunePod(pod *workload.Pod) []knobs.Change {
	members := a.members(pod)
	object, ok := podObject(pod)
	p := qos.Pod{
		QoS: pod.QoS(), Quota: a.podLimit(object), Containers: make([]qos.Container, len(members)),
		Loop:    a.roomFor(a.loop.intents.pods[pod.UID], members),
		Ceiling: a.roomFor(a.loop.intents.boxes[colocation.Above(object.Path)], members),
	}
	if s, _ := a.standingOf(a.ofPod(pod)); s == serves {
		p.Favour = a.loop.intents.favour[colocation.Above(object.Path)]
	}
	for i, c := range members {
		p.Containers[i] = a.tunable(c)
		p.Containers[i].Loop = a.loop.intents.containers[c.ID]
	}
	settings := qos.For(&a.Node, &p)
	var changes []knobs.Change
	if ok {
		if a.shared(pod) {
			settings.Pod = nil
		}
		a.keepRoom(object, settings.Pod)
		changes = append(changes, a.want(object, pod.UID, settings.Pod)...)
	}
	for i, c := range members {
		if !c.started {
			continue
		}
		c.notes = a.lackOfNode(&p.Containers[i].Request, settings.Notes[i])
		c.reclaim = qos.Reclaim{}
		if settings.Reclaim != nil {
			c.reclaim = settings.Reclaim[i]
		}
		changes = append(changes, a.want(c.object(), pod.UID, settings.Containers[i])...)
	}
	return changes
}

// keepRoom leaves a pod's memory limit as high as it has been: of a container that
// ended, the pod is still charged for what it left behind (files in memory, page
// cache), and the kernel would kill others of the pod to get below a lower one.
func (a *Agent) keepRoom(pod knobs.Object, settings []qos.Setting) {
	e, _ := a.book.Entry(pod.Path, knobs.MemoryMax)
	before, _ := e.Wrote.(knobs.Bytes)
	for i := range settings {
		if now, ok := settings[i].Value.(knobs.Bytes); ok && settings[i].Knob == knobs.MemoryMax {
			settings[i].Value = max(now, before)
		}
	}
}

// podLimit is the quota that the kubelet gave the pod's own cgroup; unlimited
// where it gave none.
func (a *Agent) podLimit(pod knobs.Object) knobs.CPUQuota {
	value, kept := a.book.Kept(pod.Path, knobs.Quota)
	if !kept {
		var err error
		if value, err = a.Kernel.Read(pod.Path, knobs.Quota); err != nil {
			return unlimited
		}
	}
	return value.(knobs.CPUQuota)
}

// tuneParents gives the cgroups above pods what their pods' settings need there.
func (a *Agent) tuneParents() []knobs.Change {
	var pods []qos.Group
	for _, t := range a.tuned {
		if t.Level != knobs.PodLevel {
			continue
		}
		group := qos.Group{Path: t.Path}
		for _, k := range t.knobs {
			group.Settings = append(group.Settings, k.Setting)
		}
		pods = append(pods, group)
	}
	var changes []knobs.Change
	wanted := map[string]bool{}
	for _, g := range a.withBoxes(qos.Parents(pods)) {
		wanted[g.Path] = true
		changes = append(changes, a.want(knobs.Object{Path: g.Path, Name: g.Path, Level: knobs.ClassLevel}, "", g.Settings)...)
	}
	for path, t := range a.tuned {
		if t.Level == knobs.ClassLevel && !wanted[path] {
			changes = append(changes, a.want(t.Object, "", nil)...)
		}
	}
	return changes
}

// shared reports whether the cgroup above a pod's containers is not its own: other
// pods have containers in it.
func (a *Agent) shared(pod *workload.Pod) bool {
	return slices.ContainsFunc(a.order, func(c *container) bool {
		return c.pod.CgroupParent == pod.CgroupParent && c.pod.UID != pod.UID
	})
}

// members are the pod's containers that have, or will have, a cgroup to write.
func (a *Agent) members(pod *workload.Pod) []*container {
	var members []*container
	for _, c := range a.order {
		if c.pod.UID == pod.UID && a.reaches(c) {
			members = append(members, c)
		}
	}
	return members
}

// tunable is a container as its settings depend on it.
func (a *Agent) tunable(c *container) qos.Container {
	t := qos.Container{Quota: c.quota, MemoryLimit: c.Resources.MemoryLimit}
	if h, ok := a.ledger.Holder(c.ID); ok {
		t.Request, t.Own = h.Request, !h.CPUs.IsEmpty()
	}
	return t
}

// want notes what a cgroup is to have, and returns the changes that it takes.
func (a *Agent) want(o knobs.Object, pod string, settings []qos.Setting) []knobs.Change {
	if o.Level != knobs.ClassLevel {
		a.retuned++
	}
	t := a.tuned[o.Path]
	if t == nil {
		if len(settings) == 0 {
			return nil
		}
		t = &tuned{Object: o, pod: pod}
		a.tuned[o.Path] = t
	}
	var changes []knobs.Change
	old := t.knobs
	t.knobs = make([]*knob, len(settings))
	for i, s := range settings {
		t.knobs[i] = &knob{}
		if at := slices.IndexFunc(old, func(k *knob) bool { return k.Knob == s.Knob }); at >= 0 {
			t.knobs[i] = old[at]
		}
		t.knobs[i].Setting = s
		delete(a.leaving, reconcile.Key{Path: o.Path, Knob: s.Knob})
	}
	if len(settings) == 0 {
		delete(a.tuned, o.Path)
	}
	_, idle := qos.Find(settings, knobs.Idle)
	for _, k := range old {
		if _, stays := qos.Find(settings, k.Knob); stays || idle && k.Knob == knobs.Weight {
			continue
		}
		gone := a.letGo(t.Object, k.Knob)
		if k.Knob == knobs.Idle { // at once: it has a weight come back, on which another may build
			a.change(gone)
			continue
		}
		changes = append(changes, gone...)
	}
	return append(changes, a.compare(t, true)...)
}

// change makes changes and notes which of them failed.
func (a *Agent) change(changes []knobs.Change) {
	failed, _ := a.apply(changes) // told, and tried again by a later pass
	a.noteAnswers(slices.DeleteFunc(changes, func(c knobs.Change) bool { return a.writer.settings[reconcile.KeyOf(&c)] != nil }), failed)
}

// noteAnswers notes which of the changes that were made failed.
func (a *Agent) noteAnswers(changes []knobs.Change, failed reconcile.Failures) {
	for i := range changes {
		at := reconcile.KeyOf(&changes[i])
		err := failed[at]
		if _, leaving := a.leaving[at]; leaving && err == nil && !a.unsaved {
			delete(a.leaving, at)
			a.book.Drop(at.Path, at.Knob)
			continue
		}
		k := a.knob(at)
		if k == nil {
			continue
		}
		problem := ""
		switch {
		case err != nil:
			problem = err.Error()
		case a.unsaved:
			problem = "its original value can't be written to disk"
		}
		a.trouble(k, problem)
		if e, _ := a.book.Entry(at.Path, at.Knob); k.problem != "" && k.before != nil && e.Wrote == changes[i].To {
			a.book.Wrote(at.Path, at.Knob, k.before)
		}
	}
}

// trouble notes why the kernel does not have a setting, "" where it has.
func (a *Agent) trouble(k *knob, problem string) {
	if k.problem != problem {
		k.problem = problem
		a.retuned++
	}
}

// knob is what is wanted of one setting, nil where nothing is.
func (a *Agent) knob(at reconcile.Key) *knob {
	if t := a.tuned[at.Path]; t != nil {
		for _, k := range t.knobs {
			if k.Knob == at.Knob {
				return k
			}
		}
	}
	return nil
}

// tuneAll does the same for every pod, after a connection has told what runs.
func (a *Agent) tuneAll() {
	if a.Kernel == nil {
		return
	}
	seen := map[string]bool{}
	var changes []knobs.Change // at once: what holds a pod opens before it
	for _, c := range a.order {
		if !seen[c.pod.UID] {
			seen[c.pod.UID] = true
			changes = append(changes, a.tunePod(c.pod)...)
		}
	}
	changes = append(changes, a.tuneParents()...)
	a.change(append(changes, a.letGoGone(seen)...))
}

// letGoGone gives back what an earlier run or connection has set and nobody asks
// for now.
func (a *Agent) letGoGone(pods map[string]bool) (changes []knobs.Change) {
	here := map[string]bool{}
	for _, c := range a.order {
		here[c.path] = true
	}
	for path, t := range a.tuned {
		if t.pod != "" && !pods[t.pod] || t.Level == knobs.ContainerLevel && !here[path] {
			changes = append(changes, a.want(t.Object, t.pod, nil)...)
		}
	}
	for _, e := range a.book.All() {
		at := reconcile.Key{Path: e.Object.Path, Knob: e.Knob}
		if a.knob(at) == nil && !a.presses(at) && (e.Wrote != nil || e.Knob > knobs.Quota) {
			changes = append(changes, a.letGo(e.Object, e.Knob)...)
		}
	}
	return changes
}

// compareAll compares every cgroup that has settings with the kernel, but for
// those of pods that are being resized.
func (a *Agent) compareAll() {
	if !a.authority().Cgroups {
		return
	}
	now := a.now()
	var changes []knobs.Change
	for uid, until := range a.resizing {
		if now.After(until) {
			delete(a.resizing, uid)
			a.change(a.unresized(uid))
		}
	}
	for at, o := range a.leaving {
		if r := a.refused[at]; r != nil && r.wait.waits(now) {
			continue
		}
		changes = append(changes, a.letGo(o, at.Knob)...)
	}
	for _, t := range a.tuned {
		if _, resizing := a.resizing[t.pod]; !resizing {
			changes = append(changes, a.compare(t, false)...)
		}
	}
	a.change(changes)
}
