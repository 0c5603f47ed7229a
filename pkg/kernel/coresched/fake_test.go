package coresched

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// fake is core scheduling as the kernel does it, for made-up processes and for the
// real threads that call it.
type fake struct {
	mu        sync.Mutex
	fails     error          // of every call
	forbidden map[int]bool   // processes that can't be reached: EPERM
	processes map[int]uint64 // cookies
	threads   map[int]uint64 // of this process, by thread id
	shares    int            // calls that changed a cookie
	nameless  bool           // right after boot
}

func newFake(pids ...int) (*fake, *Groups) {
	f := &fake{forbidden: map[int]bool{}, processes: map[int]uint64{}, threads: map[int]uint64{}}
	for _, pid := range pids {
		f.processes[pid] = 0
	}
	return f, f.fresh()
}

// fresh is what a restarted Sluice has.
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

// free is the least cookie that nobody holds, so that ids come back as soon as they
// can. Threads of this process are taken to have ended.
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
