package coresched

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// fake does what the kernel's core scheduling does, for made-up processes and for the real threads
// that call it.
type fake struct {
	mu        sync.Mutex
	fails     error          // error of every call
	forbidden map[int]bool   // processes for which calls return EPERM
	processes map[int]uint64 // cookies by process
	threads   map[int]uint64 // cookies of this process' threads, by thread ID
	shares    int            // number of calls that changed a cookie
	nameless  bool           // as right after boot
}

func newFake(pids ...int) (*fake, *Groups) {
	f := &fake{forbidden: map[int]bool{}, processes: map[int]uint64{}, threads: map[int]uint64{}}
	for _, pid := range pids {
		f.processes[pid] = 0
	}
	return f, f.fresh()
}

// fresh returns the Groups of a restarted Sluice.
func (f *fake) fresh() *Groups { return &Groups{f.prctl, map[string]*group{}} }

func (f *fake) prctl(cmd, pid, scope int, id *uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return f.fails
	}
	of, who := f.processes, pid
	if pid == 0 {
		of, who = f.threads, unix.Gettid()
	} else if _, ok := of[pid]; !ok {
		return unix.ESRCH
	}
	if f.forbidden[pid] {
		return unix.EPERM
	}
	switch {
	case cmd == unix.PR_SCHED_CORE_GET && scope == unix.PR_SCHED_CORE_SCOPE_THREAD && id != nil:
		if *id = of[who]; f.nameless {
			*id = 0
		}
		return nil
	case cmd == unix.PR_SCHED_CORE_CREATE && scope == unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP && id == nil:
		of[who] = f.free()
	case cmd == unix.PR_SCHED_CORE_SHARE_TO && scope == unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP && id == nil:
		of[who] = f.threads[unix.Gettid()]
	case cmd == unix.PR_SCHED_CORE_SHARE_FROM && scope == unix.PR_SCHED_CORE_SCOPE_THREAD && id == nil:
		f.threads[unix.Gettid()] = of[who]
	default:
		return unix.EINVAL
	}
	f.shares++
	return nil
}

// free returns the lowest cookie that nobody has, so that numbers are reused as soon as possible.
// It assumes that threads of this process have ended.
func (f *fake) free() uint64 {
	used := map[uint64]bool{0: true}
	for _, cookie := range f.processes {
		used[cookie] = true
	}
	id := uint64(1)
	for used[id] {
		id++
	}
	return id
}

func (f *fake) want(t *testing.T, cookies map[int]uint64) {
	t.Helper()
	for pid, want := range cookies {
		if got := f.processes[pid]; got != want {
			t.Errorf("process %d has cookie %d, want %d", pid, got, want)
		}
	}
}

func TestSupported(t *testing.T) {
	t.Parallel()
	for errno, want := range map[unix.Errno]knobs.Support{
		0: knobs.Supported, unix.ENODEV: knobs.Unsupported, unix.EINVAL: knobs.Unsupported,
		unix.EPERM: knobs.Inconclusive, unix.ENOSYS: knobs.Inconclusive,
	} {
		f, g := newFake()
		if errno != 0 {
			f.fails = errno
		}
		got, why := g.Supported()
		if got != want || (why == "") != (want == knobs.Supported) {
			t.Errorf("%v: %v, %q; want %v", errno, got, why, want)
		}
	}
}
