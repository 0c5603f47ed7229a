package perf

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

// kernel makes the system calls.
type kernel interface {
	// open counts an event for a cgroup, whose folder is open as a file, on one CPU. group is the leader of
	// the event's group, or -1.
	open(attr *unix.PerfEventAttr, cgroup, cpu, group int) (file int, err error)
	read(file int, into []byte) (int, error)
	close(file int)
}

// system is the kernel of this machine.
type system struct{}

func (system) open(attr *unix.PerfEventAttr, cgroup, cpu, group int) (int, error) {
	return unix.PerfEventOpen(attr, cgroup, cpu, group, unix.PERF_FLAG_PID_CGROUP|unix.PERF_FLAG_FD_CLOEXEC)
}

func (system) read(file int, into []byte) (int, error) { return unix.Read(file, into) }

func (system) close(file int) { _ = unix.Close(file) } // a counter has nothing to write

// problem is why nothing can be counted. errors.Is matches its kind and the errno.
type problem struct {
	text string
	errs []error
}

func (p *problem) Error() string   { return p.text }
func (p *problem) Unwrap() []error { return p.errs }

// explain says what an errno of perf_event_open means for counting in cgroups; see perf_event_open(2), and
// sys_perf_event_open of kernel/events/core.c.
func (h *Host) explain(err error) error {
	is := func(errnos ...syscall.Errno) bool {
		for _, e := range errnos {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	text, kind := err.Error(), error(nil)
	switch {
	case is(syscall.ENOENT, syscall.EOPNOTSUPP):
		text, kind = "this machine has no such counters that the kernel can use, as most virtual machines have none", cgroupfs.ErrUnsupported
	case is(syscall.EACCES):
		text, kind = "the kernel lets only processes with CAP_PERFMON (before Linux 5.8: CAP_SYS_ADMIN) count for others (kernel.perf_event_paranoid)", fs.ErrPermission
	case is(syscall.EPERM):
		text, kind = "this process lacks CAP_PERFMON (before Linux 5.8: CAP_SYS_ADMIN), or a seccomp profile or security module forbids perf_event_open", fs.ErrPermission
	case is(syscall.ENOSYS):
		text, kind = "the kernel has no perf_event_open (CONFIG_PERF_EVENTS)", cgroupfs.ErrUnsupported
	case is(syscall.EINVAL, syscall.EBADF):
		text, kind = "the kernel counts no events by cgroup there (CONFIG_CGROUP_PERF)", cgroupfs.ErrUnsupported
	case is(syscall.EMFILE, syscall.ENFILE):
		text = "too many files are open: a count takes two for each CPU (LimitNOFILE, fs.file-max)"
	case is(syscall.EBUSY):
		text = "others use the processor's counters all the time"
	case is(syscall.ENODEV):
		text = "no CPU is online on which to count"
	}
	p := &problem{fmt.Sprintf("counting %s: %s", h.pair.Name, text), []error{err}}
	if kind != nil {
		p.errs = append(p.errs, kind)
	}
	return p
}
