// Package coresched gives processes core-scheduling cookies by group: the SMT
// siblings of a core never run tasks of two cookies at the same time
// (Documentation/admin-guide/hw-vuln/core-scheduling.rst, Linux 5.14). No other
// package calls prctl(PR_SCHED_CORE).
package coresched

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Groups holds the groups by name, and the processes that are known to have their cookies. It
// is not safe for concurrent use.
type Groups struct {
	prctl  prctl
	groups map[string]*group
}

// group is a cookie. The kernel frees a cookie with its last task and identifies it by a hash
// of its address, so after all holders have ended the ID may belong to another cookie.
type group struct {
	cookie  uint64
	holders map[int]bool // process IDs
}

// New returns an empty set of groups. After a restart, the first Join of each group finds its
// existing cookie.
func New() *Groups { return &Groups{kernel, map[string]*group{}} }

// Supported reports whether this kernel and machine support core scheduling, and the reason if
// not.
func (g *Groups) Supported() (knobs.Support, string) {
	_, err := g.own()
	switch {
	case err == nil:
		return knobs.Supported, ""
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL):
		return knobs.Unsupported, reason(err)
	}
	return knobs.Inconclusive, reason(err)
}

// Cookie returns the ID of the cookie of a process' first thread, 0 if it has none. IDs are
// equal if the cookies are, and change with a reboot.
func (g *Groups) Cookie(pid int) (uint64, error) {
	id, err := g.cookie(pid)
	if err != nil {
		return 0, fmt.Errorf("core-scheduling cookie of process %d: %w: %s", pid, err, reason(err))
	}
	return id, nil
}

// Join gives the group's cookie to all threads of the processes, and returns how many processes
// did not have it. The cookie is that of a process that joined earlier and still runs;
// otherwise one that one of these processes already has; otherwise a new one. Threads and
// children inherit the cookie, but processes that a runtime starts in a running container
// (exec) don't, and a concurrent fork can miss it: call Join with the processes found
// afterwards until it returns 0. A process that has ended is no error.
func (g *Groups) Join(name string, pids ...int) (moved int, err error) {
	var errs []error
	fail := func(pid int, err error) {
		if !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("core-scheduling group %q, process %d: %w: %s", name, pid, err, reason(err)))
		}
	}
	g.prune(name)
	var without []int
	found := make(map[int]uint64, len(pids))
	for _, pid := range pids {
		id, err := g.cookie(pid)
		if err != nil {
			fail(pid, err)
			continue
		}
		found[pid] = id
		without = append(without, pid)
	}
	if g.groups[name] == nil {
		moved = g.begin(name, without, found, fail)
	}
	to := g.groups[name]
	if to == nil {
		return moved, errors.Join(errs...)
	}
	rest := without[:0]
	for _, pid := range without {
		if found[pid] == to.cookie {
			to.holders[pid] = true
		} else {
			rest = append(rest, pid)
		}
	}
	if len(rest) == 0 {
		return moved, errors.Join(errs...)
	}
	thread.Run(func() {
		if !g.carry(to) {
			errs = append(errs, fmt.Errorf("core-scheduling group %q: the processes that had its cookie ended meanwhile; the next pass joins %d others again", name, len(rest)))
			return
		}
		for _, pid := range rest {
			if err := g.prctl(unix.PR_SCHED_CORE_SHARE_TO, pid, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, nil); err != nil {
				fail(pid, err)
				continue
			}
			to.holders[pid] = true
			moved++
		}
	})
	return moved, errors.Join(errs...)
}

// begin creates the group from the cookie that one of the processes already has, or with a new
// cookie on the first process that accepts it. It returns how many processes got a new cookie.
func (g *Groups) begin(name string, pids []int, found map[int]uint64, fail func(int, error)) int {
	taken := map[uint64]bool{0: true}
	for other := range g.groups {
		g.prune(other) // this is the only place where groups are added
		if o := g.groups[other]; o != nil {
			taken[o.cookie] = true
		}
	}
	for _, pid := range pids {
		if !taken[found[pid]] {
			g.groups[name] = &group{found[pid], map[int]bool{pid: true}}
			return 0
		}
	}
	for _, pid := range pids {
		err := g.prctl(unix.PR_SCHED_CORE_CREATE, pid, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, nil)
		if err == nil {
			found[pid], err = g.cookie(pid)
		}
		if err == nil && found[pid] == 0 {
			err = unix.EAGAIN
		}
		if err != nil {
			fail(pid, err)
			if errors.Is(err, unix.EAGAIN) {
				return 0
			}
			continue
		}
		g.groups[name] = &group{found[pid], map[int]bool{pid: true}}
		return 1
	}
	return 0
}

// Leave removes the cookies from all threads of the processes. A process that has ended is no
// error.
func (g *Groups) Leave(pids ...int) error {
	var errs []error
	fail := func(pid int, err error) {
		if !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("taking the core-scheduling cookie from process %d: %w: %s", pid, err, reason(err)))
		}
	}
	var with []int
	for _, pid := range pids {
		switch id, err := g.cookie(pid); {
		case err != nil:
			fail(pid, err)
		case id != 0:
			with = append(with, pid)
		}
	}
	if len(with) > 0 {
		thread.Run(func() {
			if id, err := g.own(); err != nil || id != 0 {
				errs = append(errs, fmt.Errorf("taking the core-scheduling cookies from %d processes: Sluice was started with a cookie of its own (%#x) and can only pass that on; start it without: switch enable_core_scheduling off in containerd's configuration, or run Sluice outside of containers", len(with), id))
				return
			}
			for _, pid := range with {
				if err := g.prctl(unix.PR_SCHED_CORE_SHARE_TO, pid, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, nil); err != nil {
					fail(pid, err)
				}
			}
		})
	}
	for name := range g.groups {
		g.prune(name)
	}
	return errors.Join(errs...)
}

// prune forgets the processes that have ended or no longer have the group's cookie, and a group
// without processes.
func (g *Groups) prune(name string) {
	of := g.groups[name]
	if of == nil {
		return
	}
	for pid := range of.holders {
		if id, err := g.cookie(pid); err != nil || id != of.cookie {
			delete(of.holders, pid)
		}
	}
	if len(of.holders) == 0 {
		delete(g.groups, name)
	}
}

// carry gives the group's cookie to the calling thread. It compares the cookie afterwards,
// because the process ID may have been reused.
func (g *Groups) carry(of *group) bool {
	for pid := range of.holders {
		if g.prctl(unix.PR_SCHED_CORE_SHARE_FROM, pid, unix.PR_SCHED_CORE_SCOPE_THREAD, nil) != nil {
			continue
		}
		if id, err := g.own(); err == nil && id == of.cookie {
			return true
		}
	}
	return false
}

// cookie rejects process IDs below 1: 0 means the calling thread to the kernel.
func (g *Groups) cookie(pid int) (id uint64, err error) {
	if pid < 1 {
		return 0, unix.ERANGE
	}
	err = g.prctl(unix.PR_SCHED_CORE_GET, pid, unix.PR_SCHED_CORE_SCOPE_THREAD, &id)
	return id, err
}

// own returns the calling thread's cookie.
func (g *Groups) own() (id uint64, err error) {
	err = g.prctl(unix.PR_SCHED_CORE_GET, 0, unix.PR_SCHED_CORE_SCOPE_THREAD, &id)
	return id, err
}

// reason explains an errno of sched_core_share_pid (kernel/sched/core_sched.c).
func reason(err error) string {
	var errno syscall.Errno
	errors.As(err, &errno)
	switch errno {
	case unix.ENODEV:
		return "no core of this machine has SMT siblings online, so that no two processes share one; nothing is lost without core scheduling"
	case unix.EINVAL:
		return "this kernel has no core scheduling: it needs Linux 5.14 built with CONFIG_SCHED_CORE"
	case unix.EPERM:
		return "Sluice needs CAP_SYS_PTRACE and the host's process ids, or a seccomp profile forbids prctl(PR_SCHED_CORE)"
	case unix.ERANGE:
		return "this is no process id; the container has not started"
	case unix.EAGAIN:
		return "the kernel can't name cookies until it has random numbers (ptr_to_hashval, lib/vsprintf.c), soon after boot; the next pass tries again"
	case unix.ESRCH:
		return "the process has ended, or Sluice doesn't see the host's process ids"
	}
	return "the process keeps the cookie it has; the next pass tries again"
}
