package qos

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// No cgroup gets two values of one knob, both idle and a weight, a knob that the kernel lacks, or
// one of another level; no container is ever idle.
func TestSettingsAgree(t *testing.T) {
	t.Parallel()
	kernels := nodes()
	names := slices.Sorted(maps.Keys(kernels))
	rapid.Check(t, func(t *rapid.T) {
		kernel := *kernels[rapid.SampledFrom(names).Draw(t, "kernel")]
		n := &kernel
		n.CPURatio = rapid.SampledFrom([]int{0, 100, 101, 120, 333, 500}).Draw(t, "ratio")
		p := drawPod(t)
		got := For(n, p)
		checkSettings(t, n, knobs.PodLevel, got.Pod)
		for i, settings := range got.Containers {
			checkSettings(t, n, knobs.ContainerLevel, settings)
			checkContainer(t, n, &p.Containers[i], settings)
		}
		checkSums(t, n, p, got)
		for _, parent := range Parents([]Group{{"/kubepods/pod1", got.Pod}}) {
			checkSettings(t, n, knobs.ClassLevel, parent.Settings)
		}
	})
}

func checkSettings(t *rapid.T, n *Node, level knobs.Level, settings []Setting) {
	for i, s := range settings {
		if !s.Knob.SetAt(level) {
			t.Errorf("%s is set at level %d", s.Knob, level)
		}
		if !n.Features.Has(s.Knob) {
			t.Errorf("%s is set and not there", s.Knob)
		}
		if slices.ContainsFunc(settings[i+1:], func(other Setting) bool { return other.Knob == s.Knob }) {
			t.Errorf("%s is set twice", s.Knob)
		}
		if s.Why == "" {
			t.Errorf("%s is set without a reason", s.Knob)
		}
		if s.Value != nil {
			if back, err := knobs.ParseValue(s.Knob, knobs.FormatValue(s.Value)); err != nil || back != s.Value {
				t.Errorf("%s is no value of %s: %v", s.Value, s.Knob, err)
			}
		}
	}
	if value(settings, knobs.Idle) == "1" && value(settings, knobs.Weight) != "" {
		t.Error("idle and a weight")
	}
}

func amount[V any](settings []Setting, k knobs.Knob) (v V) {
	if s, ok := Find(settings, k); ok {
		v = s.Value.(V)
	}
	return v
}

func checkContainer(t *rapid.T, n *Node, c *Container, settings []Setting) {
	least, low, high := amount[knobs.Bytes](settings, knobs.MemoryMin), amount[knobs.Bytes](settings, knobs.MemoryLow), amount[knobs.Bytes](settings, knobs.MemoryHigh)
	if low > 0 && low < least || high > 0 && high < least {
		t.Errorf("min %d, low %d, high %d", least, low, high)
	}
	if r := knobs.Bytes(c.Request.Memory); least > r || low > r {
		t.Errorf("min %d and low %d protect more than the request, %d", least, low, r)
	}
	if limit := knobs.Bytes(c.MemoryLimit); limit > 0 && (high >= limit || amount[knobs.Bytes](settings, knobs.MemoryMax) >= limit) {
		t.Errorf("high %d or a new limit is not below the limit %d", high, limit)
	}
	quota := c.quota(n, grantOf(n, c))
	if burst := time.Duration(amount[knobs.CPUBurst](settings, knobs.Burst)); burst > 0 && (!quota.Finite() || burst > quota.Quota && !n.Features.BurstOverQuota) {
		t.Errorf("burst %s of the quota %s", burst, quota)
	}
	if q := amount[knobs.CPUQuota](settings, knobs.Quota); c.Quota.Finite() && q.Finite() && q.Compare(c.Quota) >= 0 {
		t.Errorf("quota %s, and the kubelet's was %s", q, c.Quota)
	}
}

func checkSums(t *rapid.T, n *Node, p *Pod, got Settings) {
	var least, low knobs.Bytes
	var bursts, quotas time.Duration
	for i, settings := range got.Containers {
		least += amount[knobs.Bytes](settings, knobs.MemoryMin)
		low += amount[knobs.Bytes](settings, knobs.MemoryLow)
		bursts += time.Duration(amount[knobs.CPUBurst](settings, knobs.Burst))
		quotas += p.Containers[i].quota(n, grantOf(n, &p.Containers[i])).Quota
	}
	if amount[knobs.Bytes](got.Pod, knobs.MemoryMin) != least || amount[knobs.Bytes](got.Pod, knobs.MemoryLow) != low {
		t.Errorf("the pod's min and low are not the sums %d and %d", least, low)
	}
	burst := time.Duration(amount[knobs.CPUBurst](got.Pod, knobs.Burst))
	own := p.Quota
	if s, ok := Find(got.Pod, knobs.Quota); ok {
		own = s.Value.(knobs.CPUQuota)
	}
	if own.Finite() {
		quotas = own.Quota
	}
	if burst > bursts || burst > 0 && burst > quotas && !n.Features.BurstOverQuota {
		t.Errorf("the pod's burst is %s of %s, its quota %s", burst, bursts, quotas)
	}
}

func drawPod(t *rapid.T) *Pod {
	p := &Pod{QoS: workload.QoS(rapid.IntRange(0, 3).Draw(t, "QoS"))}
	maybe := func(low, high int, what string) (o workload.Optional[int]) {
		if rapid.Bool().Draw(t, what+" set") {
			return workload.Some(rapid.IntRange(low, high).Draw(t, what))
		}
		return o
	}
	period := time.Duration(rapid.IntRange(10, 1000).Draw(t, "period")) * time.Millisecond // the kubelet's, for all containers
	limited := true
	for range rapid.IntRange(0, 3).Draw(t, "containers") {
		c := Container{Request: workload.Request{Class: workload.Class(rapid.IntRange(0, 5).Draw(t, "class"))}}
		r := &c.Request
		c.Own = r.Class.Pinned()
		if !c.Own && rapid.Bool().Draw(t, "limited") {
			c.Quota = knobs.CPUQuota{Quota: time.Duration(rapid.IntRange(1000, 10_000_000).Draw(t, "quota")) * time.Microsecond, Period: period}
			p.Quota.Quota += c.Quota.Quota
		}
		limited = limited && c.Quota.Finite()
		r.Memory = rapid.Int64Range(0, gib).Draw(t, "request")
		if rapid.Bool().Draw(t, "memory limited") {
			c.MemoryLimit = r.Memory + rapid.Int64Range(1, gib).Draw(t, "limit")
		}
		r.Burst.Percent = rapid.IntRange(0, 1000).Draw(t, "burst")
		r.Identity, r.Weight = maybe(-1, 2, "identity"), rapid.IntRange(0, 500).Draw(t, "weight")
		r.Tuning.Memory = workload.MemoryQoS{
			MinPercent: maybe(0, 100, "min"), LowPercent: maybe(0, 100, "low"), HighPercent: maybe(0, 100, "high"),
			WmarkRatio: maybe(0, 100, "ratio"), WmarkScale: maybe(1, 1000, "scale"), WmarkMinAdj: maybe(-25, 50, "adj"), Priority: maybe(0, 12, "priority"),
		}
		r.IO.Weight = maybe(1, 10000, "io weight")
		r.IO.Limits.WriteBPS = rapid.Int64Range(0, gib).Draw(t, "write")
		if request := maybe(0, 100_000, "batch"); request.Set {
			r.Batch.CPURequest = workload.Some(workload.MilliCPU(request.Value))
			r.Batch.MemoryLimit = workload.Some(rapid.Int64Range(0, gib).Draw(t, "batch memory"))
		}
		p.Containers = append(p.Containers, c)
	}
	if p.Quota.Period = period; !limited {
		p.Quota = knobs.UnlimitedQuota()
	}
	return p
}
