package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
)

// The cgroups of a node of Kubernetes with one service and one batch pod.
const (
	pods       = "/sys/fs/cgroup/kubepods"
	burstable  = pods + "/burstable"
	besteffort = pods + "/besteffort"
	service    = burstable + "/service"
	batch      = besteffort + "/batch"
)

// settle is how long a setting holds before it is measured.
const settle = time.Second

// mostRequests is how many latencies fit into a pipe, which nobody reads while a slice is measured.
const mostRequests = 8000

// A bed is a service and batch work that run.
type bed struct {
	plan
	cpus    int
	workers []int    // PIDs
	hogs    []int    // PIDs
	due     int      // write end of the pipe with the times at which requests are due
	took    *os.File // read end of the pipe with the latencies
}

// A slice is what was measured of one setting.
type slice struct {
	latencies      []time.Duration
	service, batch float64 // in CPUs
}

func newBed(p plan) (*bed, error) {
	var root unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(pods), &root); err != nil || root.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, errors.New("cgroup v2 is not mounted on /sys/fs/cgroup: run it in a guest, with make bench-classes")
	}
	b := &bed{plan: p, cpus: runtime.NumCPU()}
	for _, dir := range []string{pods, burstable, besteffort, service, batch} {
		if err := os.Mkdir(dir, 0o755); err != nil { // a node of Kubernetes has them already, and must not be measured
			return nil, err
		}
		if dir != service && dir != batch {
			if err := write(dir, "cgroup.subtree_control", "+cpu"); err != nil {
				return nil, err
			}
		}
	}
	for dir, shares := range map[string]knobs.Shares{pods: knobs.Shares(1024 * b.cpus), besteffort: 2, service: 1024} {
		if err := weigh(dir, shares); err != nil {
			return nil, err
		}
	}
	var requests, answers [2]int
	for _, ends := range []*[2]int{&requests, &answers} {
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
	}
	b.due, b.took = requests[1], os.NewFile(uintptr(answers[0]), "latencies")
	rounds := strconv.FormatUint(roundsIn(p.cost), 10)
	for range p.workers {
		pid, err := start(service, []int{requests[0], answers[1]}, "worker", rounds)
		if err != nil {
			return nil, err
		}
		b.workers = append(b.workers, pid)
	}
	for range 2 * b.cpus {
		pid, err := start(batch, []int{0, 1}, "hog")
		if err != nil {
			return nil, err
		}
		b.hogs = append(b.hogs, pid)
	}
	return b, nil
}

func (b *bed) end() {
	for _, pid := range append(b.hogs, b.workers...) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// start runs this program again, in a cgroup, with these files as its first ones.
func start(dir string, files []int, args ...string) (int, error) {
	cgroup, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("opening %s: %w", dir, err)
	}
	defer func() { _ = unix.Close(cgroup) }()
	return syscall.ForkExec("/proc/self/exe", append([]string{"classes"}, args...), &syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1"},
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), 2},
		Sys:   &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: cgroup},
	})
}

// play is a process of the service, which answers requests, or of batch work. It never returns.
func play(args []string) {
	if args[0] == "hog" {
		for {
			compute(1 << 20)
		}
	}
	rounds, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		fmt.Fprintln(os.Stderr, "classes: worker:", err)
		os.Exit(1)
	}
	for {
		var due int64
		transfer(unix.SYS_READ, 0, &due)
		compute(rounds)
		took := load.Now() - due
		transfer(unix.SYS_WRITE, 1, &took)
	}
}

// transfer reads a number from a pipe or writes it there, which a pipe does as a whole, and ends the process if it
// can't. Go's runtime does not learn of the call: its monitor would otherwise run every 20 µs for a while after each,
// which takes as much time as a request on an emulated CPU.
func transfer(call, file uintptr, number *int64) {
	n, _, errno := unix.RawSyscall(call, file, uintptr(unsafe.Pointer(number)), unsafe.Sizeof(*number))
	if n != unsafe.Sizeof(*number) {
		fmt.Fprintln(os.Stderr, "classes: worker:", errno)
		os.Exit(1)
	}
}

// compute does as many rounds of a random generator (xorshift).
func compute(rounds uint64) {
	x := rounds | 1
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	runtime.KeepAlive(x)
}

// roundsIn returns how many rounds of compute take that long.
func roundsIn(cost time.Duration) uint64 {
	const rounds = 5_000_000
	best := time.Duration(math.MaxInt64)
	for range 7 {
		begin := time.Now()
		compute(rounds)
		best = min(best, time.Since(begin))
	}
	return uint64(rounds * float64(cost) / float64(best))
}

// measure sends the service requests that make that much load, in percent of all CPUs.
func (b *bed) measure(s setting, level int, seed uint64) (slice, error) {
	if err := b.apply(s); err != nil {
		return slice{}, err
	}
	rate := float64(level) / 100 * float64(b.cpus) / b.cost.Seconds()
	schedule := load.Schedule([]load.Phase{{Rate: rate, For: b.slice}}, seed)
	if len(schedule) > mostRequests {
		return slice{}, fmt.Errorf("a slice has %d requests, at most %d are possible: shorten it with -slice", len(schedule), mostRequests)
	}
	time.Sleep(settle)
	var before, after [2]time.Duration
	err := load.First(func() (err error) {
		if before, err = usage(); err != nil {
			return err
		}
		begin := load.Now()
		for _, at := range schedule {
			due := begin + int64(at)
			load.SleepUntil(due)
			if _, err := unix.Write(b.due, binary.NativeEndian.AppendUint64(nil, uint64(due))); err != nil {
				return err
			}
		}
		load.SleepUntil(begin + int64(b.slice))
		after, err = usage()
		return err
	})
	if err != nil {
		return slice{}, err
	}
	r := slice{
		service: (after[0] - before[0]).Seconds() / b.slice.Seconds(),
		batch:   (after[1] - before[1]).Seconds() / b.slice.Seconds(),
	}
	answers := make([]byte, 8*len(schedule))
	if _, err := io.ReadFull(b.took, answers); err != nil {
		return slice{}, err
	}
	for ; len(answers) > 0; answers = answers[8:] {
		r.latencies = append(r.latencies, time.Duration(binary.NativeEndian.Uint64(answers)))
	}
	return r, nil
}

// apply makes a setting's changes to the cgroups, and stops or continues batch work.
func (b *bed) apply(s setting) error {
	signal, idle := unix.SIGCONT, "0"
	if s.stopped {
		signal = unix.SIGSTOP
	}
	if s.idle {
		idle = "1"
	}
	for _, pid := range b.hogs {
		if err := unix.Kill(pid, signal); err != nil {
			return err
		}
	}
	if err := weigh(burstable, s.weight); err != nil {
		return err
	}
	return write(batch, "cpu.idle", idle)
}

// usage returns the CPU time that the service and batch work have used.
func usage() (used [2]time.Duration, err error) {
	for i, dir := range []string{service, batch} {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			return used, err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		microseconds, err := strconv.ParseInt(strings.TrimPrefix(first, "usage_usec "), 10, 64)
		if err != nil {
			return used, fmt.Errorf("%s/cpu.stat: %w", dir, err)
		}
		used[i] = time.Duration(microseconds) * time.Microsecond
	}
	return used, nil
}

func weigh(dir string, shares knobs.Shares) error {
	return write(dir, "cpu.weight", strconv.FormatInt(cgroupfs.WeightOf(shares), 10))
}

func write(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}
