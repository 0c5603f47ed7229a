package guest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

const (
	weights    = "classes: {BE: {io: {weight: 10}}}\n"
	withIOCost = weights + "ioCost: {mode: on, disks: [{name: vdb, readLatency: 20ms, writeLatency: 20ms, minPercent: 5}]}\n"
)

// TestIOCost compares what a service reads from a busy disk beside batch work with and without the
// disk's io.cost. The disk is QEMU's, which makes so many operations a second, and has no I/O
// scheduler. Whatever ends it, the disk is as it was before.
func TestIOCost(t *testing.T) {
	rt := start(t, runtime.Options{})
	s, err := rt.StartSluice(runtime.SluiceOptions{Config: weights})
	must(t, err)
	n := &node{t: t, rt: rt, sluice: s}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sluice's log ends:\n%s", tail(s.Log(), 60))
		}
	})
	number := read(t, "/sys/block/vdb/dev")
	if before := costOf(t, number); before != "" {
		t.Fatalf("vdb has %s before anything has begun", before)
	}

	service := n.reader("service", "LS", 1)
	batch := n.reader("batch", "BE", 32)
	for _, file := range []string{"io.weight", "io.bfq.weight"} {
		await(t, func() error { return has(batch, file, "default 10") })
		if got := read(t, filepath.Join("/sys/fs/cgroup", filepath.Dir(filepath.Dir(batch.Cgroup)), file)); got != "default 10" {
			t.Errorf("of all batch work %s is %s", file, got)
		}
	}
	const settle = 8 * time.Second // in which the kernel finds the disk's rate
	var without, with []float64
	for range 2 {
		must(t, n.configure(weights))
		n.awaitCost(number, "", "enable=0 ctrl=auto")
		without = append(without, reads(t, service, batch, settle))
		must(t, n.configure(withIOCost))
		n.awaitCost(number, "enable=1 ctrl=user rpct=95.00 rlat=20000 wpct=95.00 wlat=20000 min=5.00 max=10000.00")
		with = append(with, reads(t, service, batch, settle))
	}
	gain := (with[0] + with[1]) / (without[0] + without[1])
	t.Logf("with io.cost the service reads %.1f times as much", gain)
	if gain < 2 {
		t.Errorf("with io.cost the service reads %.1f times as much as without it", gain)
	}

	must(t, s.Stop())
	n.awaitCost(number, "enable=0 ctrl=auto")
	must(t, s.Restart())
	n.awaitCost(number, "enable=1 ctrl=user")
	must(t, s.Kill())
	n.awaitCost(number, "enable=1 ctrl=user")
	must(t, s.Configure(weights))
	must(t, s.Restart())
	n.awaitCost(number, "enable=0 ctrl=auto")
}

// reader runs a pod whose threads read random blocks of vdb.
func (n *node) reader(name, class string, threads int) *runtime.Container {
	n.t.Helper()
	pod, err := n.rt.Run(runtime.PodSpec{
		Name: name, Namespace: "kube-system", Annotations: map[string]string{"class.sluice.dev": class},
		Containers: []runtime.ContainerSpec{{
			Name: "c", Args: []string{"first", fmt.Sprintf("read=%d", threads)}, Disk: "/dev/vdb",
			Resources: runtime.Resources{CPURequest: milli(map[string]int{"LS": 1}[class])},
		}},
	})
	must(n.t, err)
	n.t.Cleanup(func() { must(n.t, pod.Remove()) })
	return pod.Container("c")
}

// reads returns how many blocks a second the service reads, after a time in which things settle.
func reads(t *testing.T, service, batch *runtime.Container, settle time.Duration) float64 {
	t.Helper()
	const window = 10 * time.Second
	counted := func() (n [2]uint64) {
		for i, c := range []*runtime.Container{service, batch} {
			var err error
			n[i], err = c.Counted()
			must(t, err)
		}
		return n
	}
	time.Sleep(settle)
	began, before := time.Now(), counted()
	time.Sleep(window)
	seconds, after := time.Since(began).Seconds(), counted()
	rate := func(i int) float64 { return float64(after[i]-before[i]) / seconds }
	t.Logf("service %.1f blocks a second, batch %.1f; io.cost.qos %q", rate(0), rate(1), read(t, "/sys/fs/cgroup/io.cost.qos"))
	return rate(0)
}

// costOf returns the line of a disk in io.cost.qos without the disk's number, "" if there is none.
func costOf(t *testing.T, number string) string {
	t.Helper()
	for line := range strings.Lines(read(t, "/sys/fs/cgroup/io.cost.qos")) {
		if rest, found := strings.CutPrefix(line, number+" "); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// awaitCost waits until the line of a disk begins with one of the texts; "" stands for no line.
func (n *node) awaitCost(number string, texts ...string) {
	n.t.Helper()
	await(n.t, func() error {
		got := costOf(n.t, number)
		for _, text := range texts {
			if got == text || text != "" && strings.HasPrefix(got, text) {
				return nil
			}
		}
		return errors.New("vdb has " + got)
	})
}
