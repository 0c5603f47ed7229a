package podsettings

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Siblings groups the cgroups that compete with each other now by the path of their parent.
func (s *Settings) Siblings() map[string]*colocation.Siblings {
	if now := (inputs{s.Changes, s.LedgerState()}); s.siblings == nil || s.siblingsOf != now {
		s.siblings, s.siblingsOf = colocation.FindSiblings(s.Collect()), now
	}
	return s.siblings
}

// servicesBelow lists the services' cgroups below a parent, which compete with batch work's.
func (s *Settings) servicesBelow(parent string) []colocation.Sibling {
	if s := s.Siblings()[parent]; s != nil {
		return s.Services
	}
	return nil
}

// raisesWeights reports whether the weights of services may be raised at all.
func (s *Settings) raisesWeights() bool {
	cfg := &s.Config.Control.Batch
	shares := s.lendsPools() || s.Config.Pools.Mode != config.Exclusive && s.Authority().Acts(cfg.Mode)
	return s.Kernel != nil && shares && cfg.Weight() > 100 && s.QoS.Features.Has(knobs.Weight)
}

// Reweigh decides by how much to raise the weights of services.
func (s *Settings) Reweigh() {
	if !s.raisesWeights() {
		s.lsWeights.Reset(s.Want)
		return
	}
	siblings := s.Siblings()
	room := map[string]int{}
	for _, parent := range s.lsWeights.Parents(siblings) {
		room[parent] = s.weightRoom(siblings[parent].Services)
		if s.Config.KeepWeights && colocation.HasPods(siblings[parent].Services) {
			room[parent] = 100
		}
	}
	s.lsWeights.Step(s.Now(), s.Config.Control.Batch.Weight(), siblings, room, s.Want)
}

// ReweighNow raises the weights by what an event has changed. It runs before the container that
// the event is about does.
func (s *Settings) ReweighNow() {
	if !s.Synced || !s.raisesWeights() {
		return
	}
	s.Reweigh()
	s.Enforce()
}

// weightRoom is the largest percentage by which the weights of all these cgroups can be
// multiplied without one exceeding the kernel's maximum.
func (s *Settings) weightRoom(services []colocation.Sibling) int {
	v2 := s.QoS.Features.Knobs[knobs.Weight].V2
	room := cgroupfs.Room(0, v2)
	for _, service := range services {
		if shares, ok := s.OwnWeight(service); ok {
			room = min(room, cgroupfs.Room(cgroupfs.Scale(shares, service.Percent, v2), v2))
		}
	}
	return room
}

// OwnWeight is the weight that the kubelet gave a cgroup. A weight that the kubelet has written
// since Sluice's last write takes precedence over the journal's.
func (s *Settings) OwnWeight(of colocation.Sibling) (knobs.Shares, bool) {
	e, kept := s.Journal.Entry(of.Path, knobs.Weight)
	if kept && e.Wrote != nil && !of.Class {
		return e.Value.(knobs.Shares), true
	}
	value, err := s.Kernel.Read(of.Path, knobs.Weight)
	if err != nil {
		return 0, false
	}
	if kept && e.Wrote != nil && s.Kernel.Same(knobs.Weight, e.Wrote, value) {
		value = e.Value
	}
	return value.(knobs.Shares), true
}

// KeepClasses repairs the weights of the kubelet's QoS classes, which the kubelet overwrites
// each minute. Until the repair, all pods in them get a fraction of the CPU time that they
// should have.
func (s *Settings) KeepClasses() {
	if !s.Authority().Cgroups {
		return
	}
	changed := false
	for parent := range s.inForce.LSWeights {
		for _, service := range s.servicesBelow(parent) {
			if service.Class && s.Reconciler.Recheck(reconcile.Key{Path: service.Path, Knob: knobs.Weight}) {
				changed = true
			}
		}
	}
	if !changed {
		return
	}
	s.Reweigh() // by the kubelet's newer weights, which the journal has now
	s.Reconciler.Apply()
	s.Enforce()
}
