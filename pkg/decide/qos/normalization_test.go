package qos

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func micros(quota int) knobs.CPUQuota { return knobs.MicroQuota(int64(quota), 100_000) }

// The numbers are Koordinator's (pkg/koordlet/runtimehooks/hooks/cpunormalization).
func TestNormalized(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class       workload.Class
		ratio       int
		quota, want int
	}{
		{workload.LS, 120, 100_000, 83_334},
		{workload.Unclassified, 120, 100_000, 83_334},
		{workload.LS, 150, 300_000, 200_000},
		{workload.LS, 500, 100_000, 20_000},
		{workload.LS, 120, 1_000, 1_000}, // the least that the kernel takes
		{workload.LS, 100, 100_000, 100_000},
		{workload.LS, 0, 100_000, 100_000},
		{workload.BE, 120, 100_000, 100_000},
		{workload.LSR, 120, 100_000, 100_000},
		{workload.LSE, 120, 100_000, 100_000},
		{workload.System, 120, 100_000, 100_000},
	} {
		n := Node{CPURatio: c.ratio}
		if got := n.Normalized(c.class, micros(c.quota)); got != micros(c.want) {
			t.Errorf("%s: %d at %d %% is %v, want %d", c.class, c.quota, c.ratio, got, c.want)
		}
	}
	n := Node{CPURatio: 120}
	if got := n.Normalized(workload.LS, knobs.UnlimitedQuota()); got != knobs.UnlimitedQuota() {
		t.Errorf("no limit becomes %v", got)
	}
}

// A pod's limit is divided as far as all of its containers have one, and bursts follow the divided
// limit.
func TestNormalize(t *testing.T) {
	t.Parallel()
	n := mainline2()
	n.CPURatio = 120
	limited := func(class workload.Class, quota knobs.CPUQuota) Container {
		c := Container{Quota: quota}
		c.Request.Class = class
		return c
	}
	p := Pod{QoS: workload.Burstable, Quota: micros(200_000), Containers: []Container{limited(workload.LS, micros(100_000)), limited(workload.Unclassified, micros(100_000))}}
	p.Containers[0].Request.Burst.Percent = 50
	got := For(n, &p)
	for i := range p.Containers {
		if q := amount[knobs.CPUQuota](got.Containers[i], knobs.Quota); q != micros(83_334) {
			t.Errorf("container %d has %v", i, q)
		}
	}
	if q := amount[knobs.CPUQuota](got.Pod, knobs.Quota); q != micros(166_668) {
		t.Errorf("the pod has %v", q)
	}
	if burst := amount[knobs.CPUBurst](got.Containers[0], knobs.Burst); burst != knobs.CPUBurst(41_667*time.Microsecond) {
		t.Errorf("the burst is %v", burst)
	}
	p.Containers[1].Quota = knobs.UnlimitedQuota()
	p.Quota = knobs.UnlimitedQuota()
	if got = For(n, &p); amount[knobs.CPUQuota](got.Pod, knobs.Quota).Finite() || amount[knobs.CPUQuota](got.Containers[1], knobs.Quota).Finite() {
		t.Errorf("without a limit: %+v", got)
	}
	p.Containers[0].Loop = Loop{micros(200_000), "raised"}
	if got = For(n, &p); amount[knobs.CPUQuota](got.Containers[0], knobs.Quota) != micros(200_000) {
		t.Errorf("the loop's limit does not count: %+v", got)
	}
}

// The normalized quota of a pod has the period of 100 ms, and the kernel refuses a burst above it, also where
// the containers' period is longer.
func TestNormalizedPodBurst(t *testing.T) {
	t.Parallel()
	n := mainline2()
	n.CPURatio = 200
	limit := knobs.MicroQuota(2_000_000, 1_000_000)
	c := Container{Quota: limit}
	c.Request.Class, c.Request.Burst.Percent = workload.LS, 100
	got := For(n, &Pod{QoS: workload.Burstable, Quota: limit, Containers: []Container{c}})
	if q := amount[knobs.CPUQuota](got.Pod, knobs.Quota); q != micros(100_000) {
		t.Errorf("the pod has %v", q)
	}
	if burst := amount[knobs.CPUBurst](got.Pod, knobs.Burst); burst != knobs.CPUBurst(100*time.Millisecond) {
		t.Errorf("the pod's burst is %v", burst)
	}
}
