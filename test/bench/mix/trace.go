package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/bench/mix/waits"
	"github.com/sluice-dev/sluice/test/runtime"
)

// traceKiB is the size of the kernel's trace buffer of each CPU: some 20 s of a busy CPU. What does not
// fit overwrites the oldest events.
const traceKiB = 64 << 10

// tracer traces the scheduler, with a mount of tracefs and a trace buffer of its own. A nil tracer traces nothing.
type tracer struct {
	mount, instance string

	service []int          // threads of the service, when the trace began
	groups  map[int]string // of threads, when the trace began
}

func newTracer() (t *tracer, err error) {
	t = &tracer{}
	if t.mount, err = os.MkdirTemp("", "mix-trace-"); err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", t.mount, "tracefs", 0, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mounting tracefs, which -trace needs: %w", err), os.Remove(t.mount))
	}
	instance := filepath.Join(t.mount, "instances", filepath.Base(t.mount))
	if err := os.Mkdir(instance, 0o700); err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.instance = instance
	errs := []error{t.write("tracing_on", "0"), t.write("buffer_size_kb", strconv.Itoa(traceKiB))}
	for _, event := range waits.Events {
		errs = append(errs, t.write(filepath.Join("events", event, "enable"), "1"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tracer) write(file, text string) error {
	return os.WriteFile(filepath.Join(t.instance, file), []byte(text), 0)
}

// start begins with an empty trace. It lists the threads of the service and of the hog, which is nil for none, because
// a service may end its threads before the trace is read.
func (t *tracer) start(service, hog *runtime.Pod) error {
	if t == nil {
		return nil
	}
	var err, err2 error
	var batch []int
	if t.service, err = threadsOf(service); hog != nil {
		batch, err2 = threadsOf(hog)
	}
	t.groups = map[int]string{waits.Idle: "idle CPU"}
	for _, tid := range t.service {
		t.groups[tid] = "service"
	}
	for _, tid := range batch {
		t.groups[tid] = "batch"
	}
	return errors.Join(err, err2, t.write("trace", ""), t.write("tracing_on", "1"))
}

// threadsOf returns the thread IDs of a pod.
func threadsOf(pod *runtime.Pod) (tids []int, err error) {
	pids, err := pod.Container("c").PIDs()
	for _, pid := range pids {
		tids = append(tids, threads(pid)...)
	}
	return tids, err
}

func (t *tracer) stop() error {
	if t == nil {
		return nil
	}
	return t.write("tracing_on", "0")
}

// read returns for what the service waited between start and stop.
func (t *tracer) read() (waits.Waits, error) {
	if t == nil {
		return waits.Waits{}, nil
	}
	trace, err := os.Open(filepath.Join(t.instance, "trace"))
	if err != nil {
		return waits.Waits{}, err
	}
	defer func() { _ = trace.Close() }()
	return waits.Read(trace, t.service, func(task waits.Task) string {
		switch group, known := t.groups[task.TID]; {
		case known:
			return group
		case task.Name == "probe": // a process that the hog started meanwhile
			return "batch"
		case task.Name == "mix": // a thread of this program
			return "generator"
		}
		return "others"
	})
}

// threads returns the thread IDs of a process; none if it has ended.
func threads(pid int) (tids []int) {
	tasks, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

func (t *tracer) close() error {
	var err error
	if t.instance != "" {
		err = os.Remove(t.instance)
	}
	return errors.Join(err, unix.Unmount(t.mount, 0), os.Remove(t.mount))
}
