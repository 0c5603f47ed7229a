package qos

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Loop is a CPU quota from the control loop that replaces the quota that was asked for. The
// zero value is none.
type Loop struct {
	Quota knobs.CPUQuota
	Why   string
}

// loop gives containers and their pod the quotas that the control loop wants. If a container
// may use more, its pod gets room for it. On cgroup v1, which refuses a quota above that of a
// parent, all quotas stay below the pod's and the ceiling.
func (t *tuner) loop() {
	if !t.has(knobs.Quota) {
		return
	}
	ceiling := t.pod.Ceiling
	if t.node.Features.Knobs[knobs.Quota].V2 {
		ceiling = Loop{}
	}
	below := lower(t.pod.Loop, ceiling)
	if t.node.Features.Knobs[knobs.Quota].V2 {
		below = Loop{}
	}
	var sum time.Duration
	limited, raised := true, false
	for i := range t.pod.Containers {
		q, more := t.containerLoop(i, below)
		raised = raised || more
		if q.Finite() {
			sum += roomFor(q)
		} else {
			limited = false
		}
	}
	own := t.podQuota()
	want := Loop{Quota: own}
	switch all := (knobs.CPUQuota{Quota: sum, Period: knobs.DefaultPeriod}); {
	case !raised || !own.Finite():
	case !limited:
		want = Loop{knobs.UnlimitedQuota(), "room for a container whose limit is raised"}
	case all.Compare(own) > 0:
		want = Loop{all, "room for a container whose limit is raised"}
	}
	want = lower(want, t.pod.Loop)
	if want.Quota.Finite() { // a container without a quota follows the cgroups above it
		want = lower(want, ceiling)
	}
	if want.Quota != own && want.Why != "" {
		t.Pod = replace(t.Pod, want)
	}
}

// containerLoop sets a container's quota and returns it, with whether it is above what was
// asked for.
func (t *tuner) containerLoop(i int, below Loop) (q knobs.CPUQuota, raised bool) {
	c := &t.pod.Containers[i]
	base := c.quota(t.node, grantOf(t.node, c))
	if c.Own {
		return base, false
	}
	want := Loop{Quota: base}
	if c.Loop.Quota.Finite() {
		want = c.Loop
	}
	if want.Quota.Finite() { // a container without a quota follows its parents'
		want = lower(want, below)
	}
	if want.Quota != base && want.Why != "" {
		t.Containers[i] = replace(t.Containers[i], want)
	}
	return want.Quota, base.Finite() && want.Quota.Finite() && want.Quota.Compare(base) > 0
}

// roomFor returns a quota in the pod's period, rounded up, because cgroup v1 refuses a child
// whose quota is even slightly above its parent's.
func roomFor(q knobs.CPUQuota) time.Duration {
	return (q.In(knobs.DefaultPeriod) + time.Microsecond - 1).Truncate(time.Microsecond)
}

// podQuota returns the quota of the pod's cgroup without the loop.
func (t *tuner) podQuota() knobs.CPUQuota {
	if s, ok := Find(t.Pod, knobs.Quota); ok {
		return s.Value.(knobs.CPUQuota)
	}
	return t.pod.Quota
}

// leastRun is enough time for a task that holds a lock in the kernel to release it.
const leastRun = 10 * time.Millisecond

// lower returns the smaller of two quotas. Its period is that of the first, unless less than
// leastRun would be left in it.
func lower(a, b Loop) Loop {
	if !b.Quota.Finite() || a.Quota.Finite() && a.Quota.Compare(b.Quota) <= 0 {
		return a
	}
	if !a.Quota.Finite() {
		return b
	}
	q := b.Quota.In(a.Quota.Period).Truncate(time.Microsecond)
	if q < leastRun && b.Quota.Period > a.Quota.Period {
		return b
	}
	return Loop{knobs.CPUQuota{Quota: max(knobs.MinQuota, q), Period: a.Quota.Period}, b.Why}
}

// replace sets the quota of a cgroup and lowers its burst to it, because the kernel refuses a
// burst above the quota.
func replace(settings []Setting, to Loop) []Setting {
	at := slices.IndexFunc(settings, func(s Setting) bool { return s.Knob == knobs.Quota })
	if at < 0 {
		at, settings = len(settings), append(settings, Setting{Knob: knobs.Quota})
	}
	settings[at].Value, settings[at].Why = to.Quota, to.Why
	for i := range settings {
		if burst, ok := settings[i].Value.(knobs.CPUBurst); ok && to.Quota.Finite() {
			settings[i].Value = min(burst, knobs.CPUBurst(to.Quota.Quota))
		}
	}
	return settings
}
