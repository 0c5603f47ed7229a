package knobs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// Resize sends updates up and down through the runtime, twenty to a container with a burst and
// twenty to one of an idle pod, and writes the pod's own cgroup as the kubelet does. None fails,
// and after each all values are right.
func Resize(t *testing.T, b *Bed) {
	errors := b.status(t).Counters.WriteErrors
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Bed)
	}{
		{"burst", resizeBurst},
		{"idle", updateIdle},
		{"lowest weight", resizeLowest},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
	if now := b.status(t).Counters.WriteErrors; now != errors {
		t.Errorf("the kernel refused %d writes", now-errors)
	}
}

// limits returns n CPU limits, up and down.
func limits(n int) []workload.MilliCPU {
	limits := make([]workload.MilliCPU, n)
	for i := range limits {
		limits[i] = []workload.MilliCPU{2000, 300, 1500, 100, 700}[i%5]
	}
	return limits
}

// resizeBurst resizes a container with a burst of its whole quota, beside another container.
func resizeBurst(t *testing.T, b *Bed) {
	spec := beside(pod("resize-burst", limited(100, 1000), class, "LS", burst, "100%"), limited(100, 500))
	pod := b.run(t, spec)
	for i, limit := range limits(20) {
		if err := pod.Container("c").Resize(limited(100, limit)); err != nil {
			t.Fatalf("resize %d, to %s CPUs: %v", i, limit, err)
		}
		await(t, func() error {
			return errors.Join(
				b.quotaAndBurst(pod.Container("c").File, limit, limit),
				b.quotaAndBurst(pod.Container("d").File, 500, 500),
				b.quotaAndBurst(pod.File, limit+500, limit+500),
			)
		})
	}
	must(t, pod.Remove())
}

// quotaAndBurst compares a cgroup's quota and burst with CPUs in each period.
func (b *Bed) quotaAndBurst(file func(string) (string, error), quota, burst workload.MilliCPU) error {
	if b.RT.V2() {
		return errors.Join(says(file, "cpu.max", fmt.Sprintf("%d 100000", quota*100)), says(file, "cpu.max.burst", fmt.Sprint(int64(burst*100))))
	}
	return errors.Join(says(file, "cpu.cfs_quota_us", fmt.Sprint(int64(quota*100))), says(file, "cpu.cfs_burst_us", fmt.Sprint(int64(burst*100))))
}

// updateIdle updates a container of a pod whose cgroup is idle, twenty times. Nobody resizes a
// BestEffort pod, but each update, such as the CPU manager's, writes the container's weight.
func updateIdle(t *testing.T, b *Bed) {
	pod := b.run(t, pod("update-idle", runtime.Resources{}, class, "BE"))
	for i := range limits(20) {
		err := pod.Container("c").Update(&cri.LinuxContainerResources{CpuShares: 2 + int64(i%2), CpuPeriod: 100000, CpuQuota: -1})
		if err != nil {
			t.Fatalf("update %d: %v", i, err)
		}
		await(t, func() error {
			return errors.Join(says(pod.File, "cpu.idle", "1"), says(pod.Container("c").File, "cpu.idle", "0"))
		})
	}
	must(t, pod.Remove())
}

// resizeLowest resizes a pod of the lowest identity with requests, whose weight the kubelet
// writes, and with a burst.
func resizeLowest(t *testing.T, b *Bed) {
	pod := b.run(t, pod("resize-lowest", limited(100, 1000), class, "LS", identity, "-1", burst, "100%"))
	for i, limit := range limits(8) {
		if err := pod.Container("c").Resize(limited(limit/2, limit)); err != nil {
			t.Fatalf("resize %d, to %s CPUs: %v", i, limit, err)
		}
		await(t, func() error {
			err := errors.Join(b.quotaAndBurst(pod.Container("c").File, limit, limit), b.quotaAndBurst(pod.File, limit, limit))
			if b.RT.V2() {
				return errors.Join(err, says(pod.File, "cpu.weight", "1"))
			}
			return errors.Join(err, says(pod.File, "cpu.shares", "2"))
		})
	}
	must(t, pod.Remove())
}

// contains returns an error if the text lacks a part.
func contains(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("%q is not in: %s", part, text)
		}
	}
	return nil
}
