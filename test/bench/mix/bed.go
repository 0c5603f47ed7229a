package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/probe/wire"
	"github.com/sluice-dev/sluice/test/runtime"
)

// bed is a node with a service and hogs. Hogs are frozen except while a slice needs their load, so
// settings can change between slices.
type bed struct {
	rt        *runtime.Runtime
	binary    string // path of sluice
	online    runtime.Cgroup
	batch     runtime.Cgroup // the kubelet's cgroup of BestEffort pods, which is the batch cgroup
	service   *runtime.Pod
	resources runtime.Resources // of the service
	hogs      map[hogKey]*runtime.Pod
	rounds    uint32 // of work per request
	cpus      int
}

// place says where a hog's pod runs.
type place string

const (
	nowhere   place = ""
	beside    place = "beside" // Burstable, with the weight of the service
	batchPods place = "batch"  // as a BestEffort pod
)

type hogKey struct {
	kind  string
	place place
}

// request is the CPU request of the service, and of a hog beside it.
const request workload.MilliCPU = 1000

const workers = 4

// hogArgs returns the probe's arguments for each kind of hog.
func hogArgs(kind string, threads int) (string, error) {
	verb, known := map[string]string{"cpu": "spin", "memory": "stream", "cache": "files"}[kind]
	if !known {
		return "", fmt.Errorf("hog %q: not one of cpu, memory, cache", kind)
	}
	return fmt.Sprintf("%s=%d", verb, threads), nil
}

// newBed starts the runtime, the service, and hogs of these kinds.
func newBed(ctx context.Context, o options, service runtime.Resources, kinds []string) (b *bed, err error) {
	b = &bed{binary: o.sluice, resources: service, hogs: map[hogKey]*runtime.Pod{}, cpus: goruntime.NumCPU()}
	// On a machine that is busy or emulated, steps may take seconds in place of milliseconds.
	if b.rt, err = runtime.Start(runtime.Options{RegistrationTimeout: time.Minute, RequestTimeout: time.Minute}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.online, err = b.rt.Class(workload.Burstable); err != nil {
		return nil, err
	}
	if b.batch, err = b.rt.Class(workload.BestEffort); err != nil {
		return nil, err
	}
	// As setCPUCgroupConfig of the kubelet's pkg/kubelet/cm/qos_container_manager_linux.go.
	if err := errors.Join(setShares(b.online, int(request)*1024/1000), setShares(b.batch, 2)); err != nil {
		return nil, err
	}
	if err := b.serve(); err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		args, err := hogArgs(kind, 2*b.cpus)
		if err != nil {
			return nil, err
		}
		for _, place := range []place{beside, batchPods} {
			var resources runtime.Resources
			if place == beside {
				resources.CPURequest = request
			}
			pod, err := b.run(fmt.Sprintf("%s-%s", place, kind), args, resources)
			if err != nil {
				return nil, err
			}
			if err := b.settleHog(ctx, pod); err != nil {
				return nil, err
			}
			b.hogs[hogKey{kind, place}] = pod
		}
	}
	return b, b.calibrate(ctx, o)
}

// setShares sets CPU shares of cgroup v1, or on v2 the weight to which the kubelet converts them
// (CPUSharesToCPUWeight of its pkg/kubelet/cm/helpers_linux.go).
func setShares(c runtime.Cgroup, shares int) error {
	if _, err := c.Where("cpu.weight"); err == nil {
		return c.WriteFile("cpu.weight", strconv.Itoa(1+(shares-2)*9999/262142))
	}
	return c.WriteFile("cpu.shares", strconv.Itoa(shares))
}

// calibrate finds the number of rounds that cost a request its CPU time: first with one request
// after another, then under load, when requests meet cold caches.
func (b *bed) calibrate(ctx context.Context, o options) error {
	client, err := b.dial(ctx)
	if err != nil {
		return err
	}
	b.rounds, err = client.Calibrate(o.work)
	if err := errors.Join(err, client.Close()); err != nil {
		return err
	}
	const level = 30
	rate := demand{level, level}.phases(o, b.cpus)[0].Rate
	got, err := b.measure(ctx, slice{phases: []load.Phase{{Rate: rate, For: 100 * time.Millisecond}, {Rate: rate, For: time.Second}}, patience: o.patience})
	if err != nil {
		return err
	}
	if got.usage.Service <= 0 || len(got.latency) == 0 {
		return errors.New("the service used no CPU time while it was calibrated")
	}
	cost := got.usage.Service * float64(time.Second) / float64(len(got.latency))
	b.rounds = uint32(float64(b.rounds) * float64(o.work) / cost)
	return nil
}

// serve starts the service.
func (b *bed) serve() (err error) {
	b.service, err = b.run("service", fmt.Sprintf("serve=%d", workers), b.resources)
	return err
}

func (b *bed) run(name, args string, resources runtime.Resources) (*runtime.Pod, error) {
	return b.rt.Run(runtime.PodSpec{Name: name, Containers: []runtime.ContainerSpec{{Name: "c", Args: []string{args}, Resources: resources}}})
}

// settleHog lets a new hog allocate its memory and count for a moment, and then freezes it.
func (b *bed) settleHog(ctx context.Context, pod *runtime.Pod) error {
	path, err := work(pod)
	if err != nil {
		return err
	}
	err = await(ctx, path+" to count", func() error {
		s, err := counters{work: path}.count()
		if err == nil && s == 0 {
			err = errors.New("nothing yet")
		}
		return err
	})
	return errors.Join(err, pod.Freeze(true))
}

// dial connects to the service as soon as it listens.
func (b *bed) dial(ctx context.Context) (client *load.Client, err error) {
	err = await(ctx, "the service to listen", func() error {
		var err error
		client, err = load.Dial(b.service.Cgroup)
		return err
	})
	return client, err
}

// work returns the path of a hog's file of counters.
func work(pod *runtime.Pod) (string, error) {
	pids, err := pod.Container("c").PIDs()
	if err != nil {
		return "", err
	}
	if len(pids) != 1 {
		return "", fmt.Errorf("%s has the processes %v, want one", pod.Cgroup, pids)
	}
	return filepath.Join("/proc", strconv.Itoa(pids[0]), "root", wire.Counters), nil
}

// counters returns the files to sample while the hog runs, which may be nil.
func (b *bed) counters(hog *runtime.Pod) (c counters, err error) {
	kubepods, err := b.rt.Class(workload.Guaranteed)
	if err != nil {
		return c, err
	}
	if c.pods, err = usageFile(kubepods.Where); err != nil {
		return c, err
	}
	if c.service, err = usageFile(b.service.Where); err != nil {
		return c, err
	}
	c.pressure, err = b.service.Where("cpu.pressure")
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without PSI lacks the file
		return c, err
	}
	err = nil
	if hog != nil {
		c.work, err = work(hog)
	}
	return c, err
}

// usageFile returns the path of the file with a cgroup's CPU time, of cgroup v1 or v2.
func usageFile(where func(string) (string, error)) (string, error) {
	path, err := where("cpuacct.usage")
	if errors.Is(err, fs.ErrNotExist) {
		path, err = where("cpu.stat")
	}
	return path, err
}

func (b *bed) close() error { return b.rt.Close() }

// await polls until the condition holds, for at most a minute.
func await(ctx context.Context, what string, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
