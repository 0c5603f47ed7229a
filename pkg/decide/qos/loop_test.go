package qos

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestLoop(t *testing.T) {
	t.Parallel()
	by := func(cpus float64) Loop { return Loop{limit(cpus), "the loop"} }
	for name, test := range map[string]struct {
		node *Node
		pod  Pod
		want string // quota of the first container and of the pod
	}{
		"nothing":                 {mainline2(), Pod{Quota: limit(2), Containers: []Container{{Quota: limit(2)}}}, "|"},
		"raised with its pod":     {mainline1(), Pod{Quota: limit(3), Containers: []Container{{Quota: limit(2), Loop: by(4)}, {Quota: limit(1)}}}, "400000 100000|500000 100000"},
		"raised beside unlimited": {mainline1(), Pod{Quota: limit(3), Containers: []Container{{Quota: limit(2), Loop: by(4)}, {}}}, "400000 100000|max"},
		"raised in a free pod":    {mainline1(), Pod{Containers: []Container{{Quota: limit(2), Loop: by(4)}}}, "400000 100000|"},
		"raised to the µs":        {mainline1(), Pod{Quota: limit(0.1), Containers: []Container{{Quota: limit(0.1), Loop: Loop{knobs.CPUQuota{Quota: 14400e3, Period: 100e6}, "the loop"}}}}, "14400 100000|14400 100000"},
		"demoted":                 {mainline1(), Pod{Quota: limit(2), Containers: []Container{{Quota: limit(2), Loop: by(1.5)}}}, "150000 100000|"},
		"demoted without a limit": {mainline2(), Pod{Containers: []Container{{Loop: by(1.5)}}}, "150000 100000|"},
		"the pod of a batch box":  {mainline2(), Pod{Loop: by(0.5), Containers: []Container{{}}}, "|50000 100000"},
		"v1 keeps children below": {mainline1(), Pod{Loop: by(0.5), Containers: []Container{{Quota: limit(1)}}}, "50000 100000|50000 100000"},
		"v2 needs not":            {mainline2(), Pod{Loop: by(0.5), Containers: []Container{{Quota: limit(1)}}}, "|50000 100000"},
		"v1 below the box":        {mainline1(), Pod{Quota: limit(2), Ceiling: by(0.5), Containers: []Container{{Quota: limit(1)}, {}}}, "50000 100000|50000 100000"},
		"v1, a box wide enough":   {mainline1(), Pod{Quota: limit(2), Ceiling: by(8), Containers: []Container{{Quota: limit(1)}}}, "|"},
		"own CPUs are left alone": {mainline1(), Pod{Ceiling: by(0.5), Containers: []Container{{Own: true, Loop: by(1)}}}, "|"},
		"no quota on this kernel": {&Node{}, Pod{Loop: by(0.5), Containers: []Container{{Loop: by(1)}}}, "|"},
		"a box below the grant":   {mainline1(), Pod{Ceiling: by(0.5), Containers: []Container{{Request: workload.Request{Tuning: workload.Tuning{Batch: workload.Batch{CPURequest: milli(1000)}}}}}}, "50000 100000|50000 100000"},
		"another period's quota":  {mainline1(), Pod{Loop: by(0.5), Containers: []Container{{Quota: knobs.CPUQuota{Quota: 20e6, Period: 20e6}}}}, "10000 20000|50000 100000"},
	} {
		got := For(test.node, &test.pod)
		if text := value(got.Containers[0], knobs.Quota) + "|" + value(got.Pod, knobs.Quota); text != test.want {
			t.Errorf("%s: quotas %q, want %q", name, text, test.want)
		}
	}
}

// A static burst never exceeds a quota that the loop has lowered.
func TestLoopKeepsBurstsBelowQuotas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.Custom(func(t *rapid.T) Loop {
			return Loop{limit(float64(rapid.IntRange(1, 80).Draw(t, "tenths")) / 10), "the loop"}
		})
		pod := Pod{Quota: limit(4), Containers: []Container{{Quota: limit(4), Request: workload.Request{Class: workload.LS, Tuning: workload.Tuning{Burst: workload.Burst{Percent: 100}}}}}}
		if rapid.Bool().Draw(t, "container") {
			pod.Containers[0].Loop = cpus.Draw(t, "loop")
		}
		if rapid.Bool().Draw(t, "pod") {
			pod.Loop = cpus.Draw(t, "of the pod")
		}
		got := For(mainline1(), &pod)
		for _, settings := range [][]Setting{got.Pod, got.Containers[0]} {
			quota, lowered := Find(settings, knobs.Quota)
			burst, bursts := Find(settings, knobs.Burst)
			if lowered && bursts && quota.Value.(knobs.CPUQuota).Quota > 0 && burst.Value.(knobs.CPUBurst) > knobs.CPUBurst(quota.Value.(knobs.CPUQuota).Quota) {
				t.Fatalf("burst %s above quota %s", burst.Value, quota.Value)
			}
		}
	})
}
