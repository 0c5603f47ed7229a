package podsettings

import (
	"maps"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Enforce puts Want in force in the kernel. It writes only the pods whose quotas or weights
// change. In preview it reports the changes and makes none.
func (s *Settings) Enforce() {
	have := s.inForce
	if have.Equal(s.Want) {
		return
	}
	s.inForce = s.Want.Clone()
	s.version++
	if s.Kernel == nil {
		return
	}
	want := s.inForce
	below := !s.QoS.Features.Knobs[knobs.Quota].V2 // v1 refuses a quota above that of a parent cgroup
	var pods []*workload.Pod
	seen := map[string]bool{}
	for _, c := range s.Order {
		if uid := c.Pod.UID; !seen[uid] && (have.LSWeights[c.Above] != want.LSWeights[c.Above] || have.Containers[c.ID] != want.Containers[c.ID] || have.PodQuota(uid) != want.PodQuota(uid) ||
			below && have.BatchCgroups[c.Above] != want.BatchCgroups[c.Above] && s.hasQuota(c)) {
			seen[uid], pods = true, append(pods, c.Pod)
		}
	}
	for _, pod := range pods {
		s.declarePod(pod)
	}
	if !maps.Equal(have.BatchCgroups, want.BatchCgroups) || !maps.Equal(have.LSWeights, want.LSWeights) {
		s.declareParents()
	}
	s.Reconciler.Apply()
}

// hasQuota reports whether a container or its pod may have a quota that does not come from the
// loop.
func (s *Settings) hasQuota(c *node.Container) bool {
	h, ok := s.Ledger.Holder(c.ID)
	return c.Quota.Quota > 0 || ok && (h.Request.Batch.CPULimit.Set || h.Request.Batch.CPURequest.Set) || s.Reconciler.Setting(reconcile.Key{Path: c.PodPath, Knob: knobs.Quota}) != nil
}

// roomFor raises a quota of the loop to that of each container below the cgroup that was
// created and has not started: the runtime makes those containers' cgroups with their quotas,
// and cgroup v1 refuses a quota above that of a parent cgroup.
func (s *Settings) roomFor(l qos.Loop, below []*node.Container) qos.Loop {
	if l.Quota.Quota <= 0 || s.QoS.Features.Knobs[knobs.Quota].V2 {
		return l
	}
	for _, c := range below {
		q, carried := c.Carried[knobs.Quota].(knobs.CPUQuota)
		if !carried {
			q = c.Quota
		}
		if !c.Started && q.Finite() && q.Compare(l.Quota) > 0 {
			l = qos.Loop{Quota: q, Why: "room for a container that is about to start"}
		}
	}
	return l
}

// MakeRoom lifts the quota of the pod in which the runtime is about to make a container: cgroup
// v1 would refuse the container's own quota if it is higher.
func (s *Settings) MakeRoom(c *node.Container) {
	if !s.QoS.Features.Knobs[knobs.Quota].V2 {
		s.unclaimPod(c.Pod.UID)
	}
}

// Unclaim gives a pod's quota back with its last container.
func (s *Settings) Unclaim(c *node.Container) {
	for _, other := range s.Order {
		if other.Pod.UID == c.Pod.UID {
			return
		}
	}
	s.unclaimPod(c.Pod.UID)
	delete(s.resized, c.Pod.UID)
}

func (s *Settings) unclaimPod(uid string) {
	delete(s.Want.Pods, uid)
	delete(s.inForce.Pods, uid)
	delete(s.Want.Parts, uid)
	delete(s.inForce.Parts, uid)
	delete(s.Want.Culprits, uid)
	delete(s.inForce.Culprits, uid)
	s.released++
}

// Mechanism is how batch work that shares CPUs with services is limited to its budget.
func (s *Settings) Mechanism() control.Mechanism {
	by := s.Config.Control.Batch.By
	if by == control.ByAuto && len(s.Config.Control.HostApplications) > 0 {
		by = control.ByQuota
	}
	return colocation.Mechanism(by, s.NestsQuotas(), s.Ledger.Shared().Size(), s.Authority().Foreign)
}

// BoundsByQuota reports whether the loop may give batch work quotas.
func (s *Settings) BoundsByQuota() bool {
	return s.Authority().Acts(s.Config.Control.Batch.Mode) && s.Config.Pools.Mode != config.Exclusive && s.Mechanism() != control.ByCPUSet
}

// NestsQuotas reports whether the kernel refuses a quota above that of a parent cgroup, as
// cgroup v1 does.
func (s *Settings) NestsQuotas() bool { return !s.QoS.Features.Knobs[knobs.Quota].V2 }

// lendsPools reports whether batch work may run on spare CPUs of exclusive pools.
func (s *Settings) lendsPools() bool {
	may := s.Authority()
	cfg := &s.Config.Control.Pools
	return cfg.Lend && may.Acts(cfg.Mode) && may.Cpusets && s.Config.Pools.Mode == config.Exclusive
}

// Lends reports whether batch work may run on the CPUs of idle LSR pins.
func (s *Settings) Lends() bool {
	may := s.Authority()
	cfg := &s.Config.Control.Batch
	return cfg.LendLSR && may.Acts(cfg.Mode) && may.Cpusets && s.Config.Pools.Mode != config.Exclusive
}
