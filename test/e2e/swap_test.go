package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestSwap takes memory from two services while the node has swap: the kernel swaps out what one of
// them holds, and finds nothing to take from the one that stays out of swap.
func TestSwap(t *testing.T) {
	rt := start(t, runtime.Options{})
	swapOn(t)
	startSluice(t, rt, runtime.SluiceOptions{})
	for name, test := range map[string]struct {
		annotations map[string]string
		gives       bool
	}{
		"may swap":    {nil, true},
		"never swaps": {map[string]string{"memory-qos.sluice.dev": "{swap: never}"}, false},
	} {
		pod := run(t, rt, runtime.PodSpec{
			Name: "service", Annotations: test.annotations,
			Containers: []runtime.ContainerSpec{{Name: "c", Args: []string{"touch=96", "first", "sleep"}, Resources: runtime.Resources{CPURequest: 100}}},
		})
		c := pod.Container("c")
		if _, err := c.First(); err != nil {
			t.Fatal(err)
		}
		switch gives, err := takeHalf(c); {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case gives != test.gives:
			t.Errorf("%s: the kernel took 48 MiB: %t, want %t", name, gives, test.gives)
		}
		must(t, pod.Remove())
	}
}

// TestOffload has services leave batch work nearly no memory while it holds no page cache: what it
// holds goes to swap, no process is killed, and nothing is evicted. The container may not swap at
// first, as the kubelet has it on cgroup v2.
func TestOffload(t *testing.T) {
	const held = 128 * mib
	rt := start(t, runtime.Options{})
	swapOn(t)
	spec := classed("batch", "BE", runtime.Resources{})
	spec.Containers[0].Args = []string{fmt.Sprintf("touch=%d", held/mib), "first", "sleep"}
	c := run(t, rt, spec).Container("c")
	_, err := c.First()
	must(t, err)
	if _, err := c.File("memory.swap.max"); err == nil {
		must(t, c.WriteFile("memory.swap.max", "0"))
	}
	before, err := rt.Dump()
	must(t, err)
	s := loopSluice(t, rt, `classes: {BE: {memory-qos: {swap: unlimited}}}
control: {mode: on, memory: {safePercent: 1, evictPercent: 99}}`)
	await(t, "half of batch work's memory has gone to swap", func() bool {
		m := &statusOf(t, s).Loop.Memory
		return m.SwapBytes > held/2 && m.Taken.SwapBytes > held/2
	})
	await(t, "the memory is free", func() bool { // pages count as in swap while they are still being written there
		return memory(t, c.File, "memory.current", "memory.usage_in_bytes") <= held*2/3
	})
	if state, err := c.State(); err != nil || state != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("batch is %s, %v", state, err)
	}
	sound(t, s)
	restores(t, rt, s, before)
}

// takeHalf asks the kernel for half of the memory of a container that holds 96 MiB: on cgroup v2 by
// memory.reclaim, on v1 by a lower limit. It reports whether the kernel found that much.
func takeHalf(c *runtime.Container) (took bool, err error) {
	value := "64M"
	path, err := c.Where("memory.limit_in_bytes")
	if err != nil {
		value = "48M"
		if path, err = c.Where("memory.reclaim"); err != nil {
			return false, err
		}
	}
	// Not by os.File, which would wait for ever after EAGAIN.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	_, err = unix.Write(fd, []byte(value))
	err = errors.Join(err, unix.Close(fd))
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EBUSY) {
		return false, nil
	}
	return err == nil, err
}

// swapOn gives the node swap until the test ends: a file, or a guest's empty disk. A node that has swap
// is left alone.
func swapOn(t *testing.T) {
	t.Helper()
	name := "/dev/vda"
	if !inGuest() {
		name = filepath.Join(t.TempDir(), "swap")
	}
	off, err := host.SwapOn(name, 256*mib)
	if errors.Is(err, host.ErrSwap) {
		skip(t, err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, off()) })
}
