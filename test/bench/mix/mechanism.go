package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/test/runtime"
)

// mechanism is a setting of the kernel, made by hand beside the kubelet's shares. The comparison
// of mechanisms shows which one the loop should use.
type mechanism struct {
	name  string
	enter func(*bed, demand) (func() error, error)
}

func mechanisms() []mechanism {
	all := []mechanism{
		{"idle-pods", func(b *bed, _ demand) (func() error, error) { return apply(b.idlePods()) }},
		{"idle-box", func(b *bed, _ demand) (func() error, error) { return apply(b.idleBox()) }},
		{"idle-both", func(b *bed, _ demand) (func() error, error) { return apply(append(b.idlePods(), b.idleBox()...)) }},
		{"idle-pods+newidle-always", func(b *bed, _ demand) (func() error, error) {
			return both(func() (func() error, error) { return apply(b.idlePods()) }, searchAlways)
		}},
		{"one-cpu", func(b *bed, _ demand) (func() error, error) { return apply(b.oneCPU()) }},
		{"one-cpu+idle-box", func(b *bed, _ demand) (func() error, error) { return apply(append(b.oneCPU(), b.idleBox()...)) }},
		{"short-slices", func(b *bed, _ demand) (func() error, error) { return b.slices(100 * time.Microsecond) }},
		{"idle-box+short-slices", func(b *bed, _ demand) (func() error, error) {
			return both(func() (func() error, error) { return apply(b.idleBox()) },
				func() (func() error, error) { return b.slices(100 * time.Microsecond) })
		}},
	}
	for _, shares := range []int{16384, 262144} { // 16 times the service's, and the maximum of cgroup v1
		name := fmt.Sprintf("shares-%d", shares)
		all = append(all,
			mechanism{name, func(b *bed, _ demand) (func() error, error) { return apply(b.shares(shares)) }},
			mechanism{name + "+idle-pods", func(b *bed, _ demand) (func() error, error) {
				return apply(append(b.shares(shares), b.idlePods()...))
			}},
			mechanism{name + "+idle-box", func(b *bed, _ demand) (func() error, error) {
				return apply(append(b.shares(shares), b.idleBox()...))
			}})
	}
	for _, threshold := range []int{90, 97} {
		for _, period := range []time.Duration{100, 20, 10, 5} {
			period *= time.Millisecond
			name := fmt.Sprintf("quota-%d-%s", threshold, period)
			all = append(all,
				mechanism{name, func(b *bed, d demand) (func() error, error) {
					return apply(b.quota(d, threshold, period))
				}},
				mechanism{name + "+idle-box", func(b *bed, d demand) (func() error, error) {
					return apply(append(b.quota(d, threshold, period), b.idleBox()...))
				}})
		}
	}
	return all
}

// both enters one setting and then another, and returns what leaves both.
func both(first, second func() (func() error, error)) (func() error, error) {
	leaveFirst, err := first()
	if err != nil {
		return nil, err
	}
	leaveSecond, err := second()
	if err != nil {
		return nil, errors.Join(err, leaveFirst())
	}
	return func() error { return errors.Join(leaveSecond(), leaveFirst()) }, nil
}

// searchAlways lets CPUs that have nothing left to run look for waiting threads each time.
func searchAlways() (func() error, error) {
	kernel, err := newidle.Open("/")
	if err != nil {
		return nil, err
	}
	found, err := kernel.Read()
	if err == nil && (found == newidle.Always || found == newidle.Plain) {
		err = errors.New("CPUs look for waiting threads each time already: idle-pods measures that")
	}
	if err == nil {
		err = kernel.SetAlways(true)
	}
	if err != nil {
		return nil, errors.Join(err, kernel.Close())
	}
	return func() error { return errors.Join(kernel.SetAlways(false), kernel.Close()) }, nil
}

func (b *bed) idleBox() []write { return []write{{b.batch, "cpu.idle", "1"}} }

// shares gives the service and its class that many shares.
func (b *bed) shares(n int) []write {
	return []write{sharesOf(b.online, n), sharesOf(b.service, n)}
}

func (b *bed) idlePods() []write {
	var writes []write
	for key, pod := range b.hogs {
		if key.place == batchPods {
			writes = append(writes, write{pod, "cpu.idle", "1"})
		}
	}
	return writes
}

// oneCPU leaves the last CPU to the batch pods. In cgroup v1, the children's sets must shrink
// before their parent's.
func (b *bed) oneCPU() []write {
	last := strconv.Itoa(b.cpus - 1)
	var writes []write
	for key, pod := range b.hogs {
		if key.place == batchPods {
			for _, of := range []cgroup{pod.Sandbox(), pod.Container("c"), pod} {
				writes = append(writes, write{of, "cpuset.cpus", last})
			}
		}
	}
	return append(writes, write{b.batch, "cpuset.cpus", last})
}

// quota is the loop's budget of docs/control.md: what the threshold leaves beside the service's
// highest load.
func (b *bed) quota(d demand, threshold int, period time.Duration) []write {
	budget := time.Duration(max(threshold-d.high, 5)) * period * time.Duration(b.cpus) / 100
	return []write{
		{b.batch, "cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)},
		{b.batch, "cpu.cfs_quota_us", strconv.FormatInt(budget.Microseconds(), 10)},
	}
}

// slices requests scheduler slices of that length for the service's threads (sched_setattr(2),
// runtime of SCHED_OTHER, Linux 6.12), so that a thread that wakes takes precedence over one with
// longer slices.
func (b *bed) slices(length time.Duration) (func() error, error) {
	return func() error { return setSlices(b.service, 0) }, setSlices(b.service, length)
}

func setSlices(pod *runtime.Pod, length time.Duration) error {
	pids, err := pod.Container("c").PIDs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		for _, tid := range threads(pid) {
			attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Runtime: uint64(length.Nanoseconds())}
			if err := unix.SchedSetAttr(tid, attr, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}
