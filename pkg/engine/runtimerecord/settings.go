package runtimerecord

import (
	"errors"
	"strings"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/cpusets"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Found records what the runtime's record contains about a container that existed before this
// connection.
func (r *Recorder) Found(c *node.Container) {
	if cpus, err := cpuset.Parse(c.Resources.CPUs); err == nil {
		c.Recorded.CPUs = cpus
	}
	if mems, err := cpuset.Parse(c.Resources.Mems); err == nil {
		c.Recorded.Mems = mems
	}
	c.Recorded.Unlimited = c.Resources.Quota < 0
	r.recallOriginals(c)
}

// recallOriginals replaces Sluice's values in a found container's resources by the journal's
// originals. A value that isn't Sluice's is newer than the journal's and becomes the original.
func (r *Recorder) recallOriginals(c *node.Container) {
	if !r.Reaches(c) {
		return
	}
	recall := func(k knobs.Knob, now knobs.Value, set func(knobs.Value)) {
		e, kept := r.Journal.Entry(c.Path, k)
		switch {
		case !kept || e.Wrote == nil:
		case now == e.Carried, now == e.CarriedBefore, now == e.Wrote && k != knobs.Quota: // a quota that Sluice writes is not in the record
			set(e.Value)
		case !r.Kernel.Same(k, now, e.Value):
			r.Journal.Record(e.Object, k, now)
			r.Journal.RecordWrite(c.Path, k, e.Wrote)
		}
	}
	has := &c.Resources
	if has.Shares > 0 {
		recall(knobs.Weight, knobs.Shares(has.Shares), func(v knobs.Value) { has.Shares = uint64(v.(knobs.Shares)) })
	}
	if has.MemoryLimit > 0 {
		recall(knobs.MemoryMax, knobs.Bytes(has.MemoryLimit), func(v knobs.Value) { has.MemoryLimit = max(0, int64(v.(knobs.Bytes))) })
	}
	if c.Quota.Finite() {
		recall(knobs.Quota, c.Quota, func(v knobs.Value) { c.Quota = v.(knobs.CPUQuota) })
	}
}

// Prepare decides which settings of a new, resized or reconfigured container the runtime sets.
// It records what the runtime would set without Sluice. It returns an error if the container
// requires what the node lacks.
func (r *Recorder) Prepare(c *node.Container) error {
	c.Carried = knobs.Values{}
	if c.Uncontrolled {
		return nil
	}
	settings, request := r.podsettings.Alone(c)
	if unmet := qos.Unmet(request.Required, c.Notes); len(unmet) > 0 && r.Authority().Writes {
		return errors.New(strings.Join(unmet, "; "))
	}
	if r.Kernel == nil {
		return nil
	}
	f := &r.QoS.Features
	v2 := f.Knobs[knobs.CPUs].V2 && f.Knobs[knobs.Quota].V2 // runc takes a hybrid machine for v1
	normalized := r.QoS.Normalized(request.Class, c.Quota)  // not in the record, where the kubelet expects its own limit
	for _, s := range settings {
		if s.Knob == knobs.Quota && (r.mayRefuseQuota() || s.Value == knobs.Value(normalized)) {
			continue
		}
		if _, kubelets := c.Unified[s.Knob.String()]; !kubelets { // the kubelet's MemoryQoS stays
			switch field := s.Knob.RuntimeField(); {
			case field == knobs.NoField:
			case field == knobs.UnifiedField && (!v2 || !f.Knobs[s.Knob].V2): // on v1 it fails the container
			default:
				c.Carried[s.Knob] = s.Value
			}
		}
	}
	c.Unadjusted = unadjusted(c)
	return nil
}

// Renew updates, by another configuration, what the record of a running container should
// contain.
func (r *Recorder) Renew(c *node.Container) {
	c.FailedUpdate = node.FailedUpdate{}
	if c.Carried != (knobs.Values{}) { // the record has it
		r.Prepare(c) //nolint:errcheck // it runs already
		r.takeBack(c)
	}
}

// takeBack makes the next update restore the originals of settings in the record that are no
// longer wanted, since the runtime would write Sluice's values again.
func (r *Recorder) takeBack(c *node.Container) {
	back := func(k knobs.Knob) {
		if c.Recorded.Carried[k] != nil && c.Carried[k] == nil {
			c.Carried[k] = kubelets(c, k)
		}
	}
	back(knobs.Weight)
	if !r.mayRefuseQuota() {
		back(knobs.Quota)
	}
}

// mayRefuseQuota reports whether the kernel could refuse a quota by the time that the runtime
// writes it: cgroup v1 refuses one above that of a parent cgroup, and the loop may lower the
// parent's for batch work at any time.
func (r *Recorder) mayRefuseQuota() bool {
	return !r.QoS.Features.Knobs[knobs.Quota].V2 && r.podsettings.BoundsByQuota()
}

// Unadjusted is the value that the runtime would give a setting of a container if it didn't set
// Sluice's value; ok is false if it sets none for Sluice.
func (r *Recorder) Unadjusted(at reconcile.Key) (original knobs.Value, ok bool) {
	if c := r.ByPath[at.Path]; c != nil {
		original, ok = c.Unadjusted[at.Knob]
	}
	return original, ok
}

// Adjustment is what the runtime should set when it makes a new container. The journal has from
// now on what the runtime would set without Sluice: a plugin that starts before the container's
// start can't tell that from what the container was made with.
func (r *Recorder) Adjustment(c *node.Container) node.Adjustment {
	for k, original := range c.Unadjusted {
		r.Journal.Record(c.Object(), k, original)
		r.Journal.RecordWrite(c.Path, k, c.Carried[k])
	}
	a := node.Adjustment{Settings: r.Reply(c, c.Has), RDTGroup: r.groups.AtCreation(c)}
	if h, ok := r.Ledger.Holder(c.ID); ok && !c.Uncontrolled {
		a.OOMScoreAdj = h.Request.OOMScore
	}
	return a
}

// Withhold takes out of an answer what could not be given back after a crash, because its originals
// can't be written to disk: all but CPUs and memory nodes.
func (r *Recorder) Withhold(c *node.Container, set *node.Settings) {
	set.Unlimited, set.Carried = false, knobs.Values{}
	c.Recorded = *set
}

// Reply is what the runtime should set of a container in the answer to its own request. The
// record has it from then on.
func (r *Recorder) Reply(c *node.Container, as placement.Assignment) node.Settings {
	set := r.settings(c, as)
	if (set != node.Settings{}) {
		r.carry(c, set)
		c.Recorded = set
	}
	return set
}

// carry notes in the journal what the runtime is about to be told: if this process ends before the
// answer, the runtime writes it to the kernel all the same.
func (r *Recorder) carry(c *node.Container, set node.Settings) {
	for k, value := range set.Carried {
		if value != nil {
			r.Journal.RecordCarried(c.Path, knobs.Knob(k), value)
		}
	}
}

// Made records that the runtime has made the last update of a container, unless another one is under
// way. What Sluice told it before is no longer in its record, and counts as the kubelet's from now on.
func (r *Recorder) Made(c *node.Container) {
	if r.pending == nil || r.pending.ContainerID != c.ID {
		r.carry(c, c.Recorded)
		r.Journal.ForgetCarriedBefore(c.Path)
	}
}

// Updates lists, for the answer to the present request, what the runtime should set of the
// other containers whose cpusets Sluice can't write. It leaves out the container with the ID
// skip.
func (r *Recorder) Updates(skip string) []node.Update {
	clear(r.before)
	r.before = r.before[:0]
	now := r.LedgerState()
	if r.replied == now || !r.Authority().Cpusets {
		return nil
	}
	r.replied = now
	var updates []node.Update
	for _, c := range r.Order {
		want, ok := r.Ledger.Assignment(c.ID)
		if !ok || c.ID == skip || c.Uncontrolled || r.SetsCPUs(c) || len(cpusets.Changes(c, want, false)) == 0 {
			continue
		}
		r.before = append(r.before, replaced{c, c.Has, c.Recorded})
		r.cpusets.Touch(c)
		c.Has = want
		updates = append(updates, node.Update{ContainerID: c.ID, Settings: r.Reply(c, want)})
	}
	return updates
}

// Unread records that the runtime has not read the answer with the last list of Updates, so that
// the next one lists them again.
func (r *Recorder) Unread() {
	for _, b := range r.before {
		b.Has, b.Recorded = b.has, b.recorded
	}
	r.replied = node.LedgerState{}
}

// settings converts an assignment to the runtime's terms. A container that once had a cpuset is
// given all CPUs by number, since the runtime can't express "as the parent".
func (r *Recorder) settings(c *node.Container, as placement.Assignment) node.Settings {
	if c.Uncontrolled {
		return node.Settings{}
	}
	if r.Authority().Foreign {
		return node.Settings{Carried: c.Carried}
	}
	s := node.Settings{CPUs: as.CPUs, Mems: as.Mems, Unlimited: as.Unlimited, Carried: c.Carried}
	if c.Touched && s.CPUs.IsEmpty() {
		s.CPUs = r.Usable()
	}
	if c.Touched && s.Mems.IsEmpty() && !c.Recorded.Mems.IsEmpty() {
		s.Mems = r.Ledger.Machine().MemoryNodes()
	}
	return s
}

// unadjusted lists what the runtime would set without Sluice of the knobs that it sets for
// Sluice.
func unadjusted(c *node.Container) map[knobs.Knob]knobs.Value {
	values := map[knobs.Knob]knobs.Value{}
	for k := range knobs.Knobs {
		if c.Carried[k] != nil {
			values[k] = kubelets(c, k)
		}
	}
	return values
}

// kubelets is the value of a knob that the runtime would set for the kubelet: the kernel's
// default if the kubelet requests nothing.
func kubelets(c *node.Container, k knobs.Knob) knobs.Value {
	switch r := &c.Resources; k.RuntimeField() {
	case knobs.SharesField:
		return max(knobs.MinShares, knobs.Shares(r.Shares))
	case knobs.QuotaField:
		if c.Quota.Finite() {
			return c.Quota
		}
		return knobs.UnlimitedQuota()
	case knobs.MemoryLimitField:
		if r.MemoryLimit > 0 {
			return knobs.Bytes(r.MemoryLimit)
		}
	}
	return cgroupfs.Describe(k).Default
}
