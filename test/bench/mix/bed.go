package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
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
	server    *server        // that is the service; nil for the probe
	programs  string         // folder of the servers' programs
	address   netip.AddrPort // where the server listens
	service   *runtime.Pod
	resources runtime.Resources // of the service
	objective *objective        // of the service; nil for none
	hogs      map[hogKey]*runtime.Pod
	work      time.Duration // CPU time of a request
	rounds    uint32        // of the probe's work per request
	cpus      int
	tracer    *tracer // nil for none
	paces     paces
	costs     []time.Duration // of a request to the server, of each calibration
}

// place says where a hog's pod runs.
type place string

const (
	nowhere   place = ""
	beside    place = "beside" // Burstable, with the weight of the service
	batchPods place = "batch"  // as a BestEffort pod
	greedy    place = "greedy" // the same as beside, in a pod of class BE
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
	verb, known := map[string]string{"cpu": "spin", "memory": "stream", "cache": "files", "fork": "fork", "disk": "disk"}[kind]
	if !known {
		return "", fmt.Errorf("hog %q: not one of cpu, memory, cache, fork, disk", kind)
	}
	return fmt.Sprintf("%s=%d", verb, threads), nil
}

// newBed starts the runtime, the service, and hogs of these kinds.
func newBed(ctx context.Context, o options, service runtime.Resources, kinds []string) (b *bed, err error) {
	b = &bed{
		binary: o.sluice, server: o.server, programs: o.programs, resources: service, objective: o.objective,
		hogs: map[hogKey]*runtime.Pod{}, work: o.work, cpus: goruntime.NumCPU(),
	}
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
		return b, err
	}
	if b.batch, err = b.rt.Class(workload.BestEffort); err != nil {
		return b, err
	}
	// As setCPUCgroupConfig of the kubelet's pkg/kubelet/cm/qos_container_manager_linux.go.
	if err := errors.Join(sharesOf(b.online, int(request)*1024/1000).do(), sharesOf(b.batch, 2).do()); err != nil {
		return b, err
	}
	if err := b.serve(); err != nil {
		return b, err
	}
	for _, kind := range kinds {
		for _, place := range []place{beside, batchPods} {
			if err := b.addHog(ctx, kind, place); err != nil {
				return b, err
			}
		}
	}
	return b, b.calibrate(ctx, o)
}

// addHog starts a hog, and freezes it.
func (b *bed) addHog(ctx context.Context, kind string, place place) error {
	args, err := hogArgs(kind, 2*b.cpus)
	if err != nil {
		return err
	}
	spec := runtime.PodSpec{Name: fmt.Sprintf("%s-%s", place, kind), Containers: []runtime.ContainerSpec{{Name: "c", Args: []string{args}}}}
	if place != batchPods {
		spec.Containers[0].Resources.CPURequest = request
	}
	if place == greedy {
		spec.Annotations = map[string]string{"class.sluice.dev": "BE"}
	}
	pod, err := b.rt.Run(spec)
	if err != nil {
		return err
	}
	b.hogs[hogKey{kind, place}] = pod
	return b.settleHog(ctx, pod)
}

// calibrate finds the number of rounds that cost a request to the probe its CPU time, or the CPU time
// of a request to another server: first with one request after another, then under load, when requests
// meet cold caches. Of all calibrations of a server, the median counts.
func (b *bed) calibrate(ctx context.Context, o options) error {
	if err := b.roughly(ctx); err != nil {
		return err
	}
	const level, tries = 30, 5
	rate, counted := b.phases(o, demand{level, level})[0].Rate, 3*o.slice
	var cost float64
	for range tries {
		got, err := b.measure(ctx, slice{phases: []load.Phase{{Rate: rate, For: time.Second}, {Rate: rate, For: counted}}, patience: o.patience})
		if err != nil {
			return err
		}
		if got.usage.Service <= 0 || len(got.latency) == 0 {
			return errors.New("the service used no CPU time while it was calibrated")
		}
		cost = got.usage.Service * float64(counted) / float64(len(got.latency))
		if !b.paces.differs(got.pace, o.maxPace) {
			break
		}
	}
	if b.server != nil {
		b.costs = append(b.costs, time.Duration(cost))
		b.work = load.Quantile(slices.Clone(b.costs), 0.5)
		return nil
	}
	b.rounds = uint32(float64(b.rounds) * float64(b.work) / cost)
	return nil
}

// roughly calibrates with one request after another.
func (b *bed) roughly(ctx context.Context) error {
	client, err := b.dial(ctx)
	if err != nil {
		return err
	}
	switch client := client.(type) {
	case *load.Client:
		b.rounds, err = client.Calibrate(b.work)
	case *load.Streams:
		const times = 500
		var files counters
		var before, after sample
		files, err = b.counters(nil)
		if err == nil {
			before, err = files.read()
		}
		if err == nil {
			err = client.Ask(times)
		}
		if err == nil {
			after, err = files.read()
		}
		b.work = max(time.Microsecond, time.Duration(between(before, after, b.cpus).Service*float64(after.at-before.at)/times))
	}
	return errors.Join(err, client.Close())
}

// serve starts the service.
func (b *bed) serve() (err error) {
	spec := runtime.ContainerSpec{Name: "c", Args: []string{fmt.Sprintf("serve=%d", workers)}}
	if b.server != nil {
		own := filepath.Join(b.rt.Dir, "service")
		port, err := freePort()
		if err != nil {
			return err
		}
		b.address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
		if spec, err = b.server.container(b.programs, own, port); err != nil {
			return err
		}
	}
	var annotations map[string]string
	if b.objective != nil {
		port, err := freePort()
		if err != nil {
			return err
		}
		spec.Args = append([]string{fmt.Sprintf("metrics=%d", port)}, spec.Args...)
		annotations = b.objective.annotations(port)
	}
	spec.Resources = b.resources
	b.service, err = b.rt.Run(runtime.PodSpec{Name: "service", Annotations: annotations, Containers: []runtime.ContainerSpec{spec}})
	return err
}

// client sends requests to the service.
type client interface {
	Run(l load.Load) (*load.Result, error)
	Interrupt()
	Close() error
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
func (b *bed) dial(ctx context.Context) (c client, err error) {
	err = await(ctx, "the service to listen", func() error {
		var err error
		if b.server == nil {
			c, err = load.Dial(b.service.Cgroup)
		} else {
			c, err = load.Connect(b.address, b.server.connections, b.server.protocol)
		}
		return err
	})
	return c, err
}

// work returns the path of a hog's file of counters.
func work(pod *runtime.Pod) (string, error) {
	pids, err := pod.Container("c").PIDs()
	if err != nil {
		return "", err
	}
	for _, pid := range pids {
		parent, err := parentOf(pid)
		if err == nil && !slices.Contains(pids, parent) {
			return filepath.Join("/proc", strconv.Itoa(pid), "root", wire.Counters), nil
		}
	}
	return "", fmt.Errorf("none of the processes %v of %s is the first", pids, pod.Cgroup)
}

// parentOf returns the PID of a process' parent, the second field after the name in its stat.
func parentOf(pid int) (parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", new(rune), &parent)
	return parent, err
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

func (b *bed) close() error {
	err := b.rt.Close()
	if b.tracer != nil {
		err = errors.Join(err, b.tracer.close())
	}
	return err
}

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
