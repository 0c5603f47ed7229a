package sim

import (
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/decisionlog"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// koordinator limits batch work by Koordinator's CPU suppress with the policy cfsQuota
// (pkg/koordlet/qosmanager/plugins/cpusuppress). Each second, the cgroup besteffort gets a quota of
//
//	capacity × threshold − usage of other pods − max(usage of the system, reserved)
//
// CPUs: at least a fiftieth of a CPU, and at most a tenth of the node more than before. A change of
// less than a hundredth of the node is left out. On the simulated node, nothing runs outside of pods,
// and nothing is reserved.
//
// Koordinator's other policy, cpuset, gives batch work whole cores. The model spreads a service evenly
// over all CPUs that it may use, also over those cores, where the kernel would avoid them, so that it
// would be unfair to that policy.
type koordinator struct {
	node, threshold float64 // in CPUs; part of the node
	quota           float64 // in CPUs; infinite before the first decision
	seconds         float64 // CPU time of other pods since the last decision
	log             *decisionlog.Log
}

const (
	koordinatorThreshold = 65   // percent, as shipped (cpuSuppressThresholdPercent)
	koordinatorLeast     = 0.02 // CPUs (beMinQuota: 2000 µs in 100 ms)
	koordinatorGrowth    = 0.1  // of the node's CPUs (beMaxIncreaseCPUPercent)
	koordinatorLeftOut   = 0.01 // of the node's CPUs (suppressBypassQuotaDeltaRatio)
)

func newKoordinator(s *simulation) *koordinator {
	return &koordinator{
		node: float64(s.node.machine.Online.Size()), threshold: float64(scale(koordinatorThreshold, s.report.trial.tight)) / 100,
		quota: math.Inf(1), log: rivalLog(s),
	}
}

func (k *koordinator) step(s *simulation, now time.Duration) error {
	for _, c := range s.node.containers {
		if c.pod.online() {
			k.seconds += c.got * s.node.step.Seconds()
		}
	}
	if now%rivalEvery >= s.node.step {
		return nil
	}
	had := k.quota
	k.quota = k.decide(k.seconds / rivalEvery.Seconds())
	k.seconds = 0
	k.log.Add(s.time(), control.On, resized("batch", "node", "squeeze", min(had, k.node), k.quota))
	k.log.EndResting(s.time())
	if k.quota != had {
		const period = 100 * time.Millisecond
		quota := knobs.CPUQuota{Quota: time.Duration(k.quota * float64(period)), Period: period}
		s.node.set("/kubepods/besteffort", map[knobs.Knob]knobs.Value{knobs.Quota: quota})
	}
	return nil
}

// decide returns the quota if other pods use so many CPUs.
func (k *koordinator) decide(others float64) float64 {
	quota := max(k.node*k.threshold-others, koordinatorLeast)
	switch {
	case math.IsInf(k.quota, 1):
		return quota
	case math.Abs(quota-k.quota) < k.node*koordinatorLeftOut && quota != koordinatorLeast:
		return k.quota
	}
	return min(quota, k.quota+k.node*koordinatorGrowth)
}
