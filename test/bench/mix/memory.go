package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/test/runtime"
)

// In the memory part, the node's memory is the limit of kubepods, as the kubelet sets it for
// allocatable memory. The machine itself never runs short.
const (
	mib           = 1 << 20
	nodeMemory    = 2048 * mib
	serviceMemory = 1792 * mib // request and limit
	growth        = 1280 * mib // of the service, after batch work has taken its memory
	growLoad      = 30         // in percent of the node's CPUs
	batchMemory   = 1024 * mib // allocated at once
)

// memoryConfig evicts: without swap, nothing else frees memory that isn't page cache. With swap,
// batch work may use all of it, and services none.
func memoryConfig(swap string) string {
	config := `
defaults: {besteffort: BE}
control: {mode: on, eviction: {by: cri, socket: $CRI}}`
	if swap != "none" {
		config += `
classes:
  LS: {memory-qos: {swap: never}}
  BE: {cpu-identity: -1, memory-qos: {swap: unlimited, wmarkRatio: 95, wmarkScale: 20, wmarkMinAdj: 50}}`
	}
	return config
}

// holding says how batch work holds its memory: verb is the probe's command for an amount in MiB.
type holding struct{ name, verb string }

func holdings() []holding { return []holding{{"anonymous", "touch"}, {"page cache", "fill"}} }

// takeBacks measures in each setting how the service's memory grows, alone and into memory that
// batch work holds.
func takeBacks(ctx context.Context, o options) (out []report.Memory, err error) {
	all, err := settings(o.settings, memoryConfig(o.swap))
	if err != nil {
		return nil, err
	}
	off, err := swapOn(o.swap)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, off()) }()
	b, err := newBed(ctx, o, runtime.Whole(workload.MilliCPU(1000*goruntime.NumCPU()), serviceMemory), nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	node, err := b.rt.Class(workload.Guaranteed)
	if err != nil {
		return nil, err
	}
	if err := node.WriteFile("memory.limit_in_bytes", strconv.Itoa(nodeMemory)); err != nil {
		return nil, err
	}
	type measured struct {
		report.Memory
		setting                    setting
		holding                    holding
		latency, freed, reclaiming []time.Duration
	}
	var cells []*measured
	for _, s := range all {
		if s.hog == nowhere {
			cells = append(cells, &measured{Memory: report.Memory{Setting: s.name}, setting: s})
			continue
		}
		for _, h := range holdings() {
			cells = append(cells, &measured{Memory: report.Memory{Setting: s.name, Holds: h.name}, setting: s, holding: h})
		}
	}
	for repetition := range o.memoryRepeat {
		for _, c := range cells {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			got, err := b.takeBack(ctx, o, c.setting, c.holding, node, uint64(repetition))
			if err != nil {
				return nil, fmt.Errorf("memory, %s, %s: %w", c.Setting, c.Holds, err)
			}
			o.progress("memory %d/%d %-12s %-10s p99 %s, waited %s for memory, freed after %s, %d MiB to swap, %d kills", repetition+1, o.memoryRepeat, c.Setting, c.Holds,
				load.Quantile(got.latency, 0.99).Round(time.Microsecond), got.reclaiming, got.freed.Round(time.Millisecond), got.swapped/mib, got.kills)
			c.Repetitions++
			c.latency, c.reclaiming = append(c.latency, got.latency...), append(c.reclaiming, got.reclaiming)
			if got.freed > 0 {
				c.freed = append(c.freed, got.freed)
			} else if c.Holds != "" {
				c.NotFreed++
			}
			c.Failures += got.failures
			c.Kills += got.kills
			c.Swapped += got.swapped
			c.Lost += got.lost
			if got.evicted {
				c.Evicted++
			}
			if got.serviceKilled {
				c.ServiceKills++
			}
		}
	}
	for _, c := range cells {
		c.P50, c.P99, c.P999 = load.Quantile(c.latency, 0.5), load.Quantile(c.latency, 0.99), load.Quantile(c.latency, 0.999)
		c.FreedP50, c.FreedP99 = load.Quantile(c.freed, 0.5), load.Quantile(c.freed, 0.99)
		c.Reclaiming = report.Spread{Low: load.Quantile(c.reclaiming, 0), Median: load.Quantile(c.reclaiming, 0.5), High: load.Quantile(c.reclaiming, 1)}
		out = append(out, c.Memory)
	}
	return out, nil
}

// taking is one growth of the service.
type taking struct {
	latency           []time.Duration
	lost              int
	freed, reclaiming time.Duration
	failures, kills   int64
	swapped           int64 // in bytes
	evicted           bool
	serviceKilled     bool
}

func (b *bed) takeBack(ctx context.Context, o options, s setting, h holding, node runtime.Cgroup, seed uint64) (got taking, err error) {
	if s.enter != nil {
		var leave func() error
		if leave, err = s.enter(b, demand{growLoad, growLoad}); err != nil {
			return got, err
		}
		defer func() { err = errors.Join(err, leave()) }()
	}
	var batch memoryFile
	if s.hog != nowhere {
		var pod *runtime.Pod
		if pod, batch, err = b.hold(h); err != nil {
			return got, err
		}
		defer func() { err = errors.Join(err, pod.Remove()) }()
	}
	if err := b.shrunk(ctx); err != nil {
		return got, err
	}
	before, err := b.memory(node)
	if err != nil {
		return got, err
	}
	grow := slice{phases: b.phases(options{settle: o.growTime}, demand{growLoad, growLoad}), seed: seed, patience: o.patience}
	grow.keep = uint32(growth / 1024 / len(load.Schedule(grow.phases, seed)))
	_, result, err := b.send(ctx, grow, func(begin int64) (err error) {
		if batch != "" {
			got.freed, err = batch.freed(begin, begin+int64(o.growTime+o.patience), before.used+growth-nodeMemory)
		}
		return err
	})
	if err != nil { // the kernel has killed the service for lack of memory
		if ended := b.ended(ctx); ended != nil {
			return got, errors.Join(err, ended)
		}
		got.serviceKilled = true
		if err := errors.Join(b.service.Remove(), b.serve()); err != nil {
			return got, err
		}
	}
	after, err := b.memory(node)
	if !got.serviceKilled {
		got.latency, got.lost = result.Latency, result.Lost
		got.reclaiming = after.reclaiming - before.reclaiming
	}
	got.failures = after.failures - before.failures
	got.kills = after.kills - before.kills
	// A process that the kernel killed, other than the service, was batch work, which was not evicted then.
	got.evicted = batch != "" && batch.gone() && (got.kills == 0 || got.kills == 1 && got.serviceKilled)
	got.swapped = after.swapped - before.swapped
	return got, err
}

// shrunk waits until the service has freed the memory of the previous growth.
func (b *bed) shrunk(ctx context.Context) error {
	path, err := b.service.Where("memory.usage_in_bytes")
	if err != nil {
		return err
	}
	return await(ctx, "the service to give its memory back", func() error {
		used, err := number(path)
		if err == nil && used > 256*mib {
			err = fmt.Errorf("it has %d MiB", used/mib)
		}
		return err
	})
}

// ended waits until the service has no process.
func (b *bed) ended(ctx context.Context) error {
	return await(ctx, "the service to end", func() error {
		pids, err := b.service.Container("c").PIDs()
		if err == nil && len(pids) > 0 {
			err = fmt.Errorf("it has the processes %v", pids)
		}
		return err
	})
}

// hold runs a batch pod until it holds its memory.
func (b *bed) hold(h holding) (*runtime.Pod, memoryFile, error) {
	pod, err := b.rt.Run(runtime.PodSpec{Name: "holder", Containers: []runtime.ContainerSpec{
		{Name: "c", Args: []string{fmt.Sprintf("%s=%d", h.verb, batchMemory/mib), "first", "sleep"}},
	}})
	if err != nil {
		return nil, "", err
	}
	_, err = pod.Container("c").First()
	path, pathErr := pod.Container("c").Where("memory.usage_in_bytes") // the pod's own outlives an eviction
	if err := errors.Join(err, pathErr); err != nil {
		return nil, "", errors.Join(err, pod.Remove())
	}
	return pod, memoryFile(path), nil
}

// memorySample holds the kernel's counters at one time.
type memorySample struct {
	used            int64         // in bytes, of all pods
	swapped         int64         // bytes written to swap since boot
	failures, kills int64         // failed allocations at the node's limit, and kills of any process by the kernel
	reclaiming      time.Duration // time in which a thread of the service waited for memory
}

func (b *bed) memory(node runtime.Cgroup) (s memorySample, err error) {
	for file, to := range map[string]*int64{"memory.usage_in_bytes": &s.used, "memory.failcnt": &s.failures} {
		path, err := node.Where(file)
		if err != nil {
			return s, err
		}
		if *to, err = number(path); err != nil {
			return s, err
		}
	}
	pressure, err := b.service.Where("memory.pressure")
	if err != nil {
		return s, err
	}
	if err := stalled(pressure, &s.reclaiming); err != nil {
		return s, err
	}
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return s, err
	}
	event := func(name string) (n int64) {
		_, rest, _ := strings.Cut(string(text), "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		n, parsed := strconv.ParseInt(value, 10, 64)
		err = errors.Join(err, parsed)
		return n
	}
	s.kills, s.swapped = event("oom_kill"), event("pswpout")*int64(os.Getpagesize())
	return s, err
}

// swapOn gives the node swap of that kind: twice what batch work holds.
func swapOn(kind string) (off func() error, err error) {
	const size = 2 * batchMemory
	switch kind {
	case "none":
		return func() error { return nil }, nil
	case "zram":
		device, remove, err := host.ZRAM(size)
		if err != nil {
			return nil, err
		}
		off, err := host.SwapOn(device, size)
		if err != nil {
			return nil, errors.Join(err, remove())
		}
		return func() error { return errors.Join(off(), remove()) }, nil
	case "disk":
		folder, err := os.MkdirTemp("", "sluice-swap-")
		if err != nil {
			return nil, err
		}
		off, err := host.SwapOn(filepath.Join(folder, "swap"), size)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(folder))
		}
		return func() error { return errors.Join(off(), os.RemoveAll(folder)) }, nil
	}
	return nil, fmt.Errorf("swap %q: not one of none, disk, zram", kind)
}

// memoryFile is the path of a memory.usage_in_bytes.
type memoryFile string

// gone reports whether the cgroup has been removed, as that of a container that was evicted.
func (f memoryFile) gone() bool {
	_, err := number(string(f))
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// freed returns how long after begin the usage was that much lower, or 0 if it wasn't by the
// deadline. If the cgroup is gone, all memory is free.
func (f memoryFile) freed(begin, deadline, by int64) (time.Duration, error) {
	load.SleepUntil(begin)
	first, err := number(string(f))
	if err != nil {
		return 0, err
	}
	for next := begin; next < deadline; next += int64(time.Millisecond) {
		load.SleepUntil(next)
		used, err := number(string(f))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			used, err = 0, nil
		}
		if err != nil {
			return 0, err
		}
		if used <= first-by {
			return time.Duration(load.Now() - begin), nil
		}
	}
	return 0, nil
}
