package cgroupfs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// These errors classify failures by how a caller should react.
var (
	// ErrGone says that the cgroup doesn't exist, usually because its container has ended.
	ErrGone = errors.New("the cgroup is gone")
	// ErrUnsupported says that the cgroup exists but doesn't have the file.
	ErrUnsupported = errors.New("not supported here")
	// ErrConstraint (EINVAL, ERANGE) says that the value conflicts with the parent, the
	// children or other files of the cgroup.
	ErrConstraint = errors.New("the value breaks a constraint")
	// ErrOrder (EBUSY, EACCES) says that, on v1, a child still uses what would be taken away,
	// or the parent lacks what would be added.
	ErrOrder = errors.New("the cgroups above or below stand in the way")
	// ErrEmpty (ENOSPC) says that a cpuset with processes can't be emptied, or that its
	// parent's set is empty.
	ErrEmpty = errors.New("a set is empty")
	// ErrNotEffective says that v2 accepted the value, but that no part of it is in the
	// parent's set, so that the processes run on the parent's whole set.
	ErrNotEffective = errors.New("the kernel took the value but doesn't follow it")
	// ErrNamespace (EPERM) says that the cgroup is the root of this process's cgroup namespace.
	// v2, mounted with nsdelegate, lets only processes outside of a namespace set its root's
	// cpuset (cgroup_file_write in kernel/cgroup/cgroup.c).
	ErrNamespace = errors.New("a process cannot set the cpuset of its own cgroup namespace")
	// ErrNoDevice (ENODEV) says that this machine has no such block device, or that the device
	// is a partition, which has no limits of its own.
	ErrNoDevice = errors.New("there is no such whole disk")
)

// ChangeError says which change failed. errors.Is matches the kind of failure and, if the
// kernel refused the change, the errno.
type ChangeError struct {
	Change knobs.Change
	Kind   error // one of this package's errors; nil for any other failure
	Err    error // the cause, with the name of the file
}

func (e *ChangeError) Error() string {
	c := e.Change
	text := fmt.Sprintf("%s of %s (cgroup %s) to %s: %v", c.Knob, c.Object.Name, c.Object.Path, c.To, e.Err)
	if e.Kind != nil && !errors.Is(e.Err, e.Kind) {
		text += ": " + e.Kind.Error()
	}
	return text + "; " + e.next()
}

// next says what Sluice does after the failure.
func (e *ChangeError) next() string {
	switch {
	case errors.Is(e.Kind, ErrGone):
		return "its container is taken to have ended"
	case errors.Is(e.Kind, ErrUnsupported):
		return "it is left alone; enable the cgroup controller for it, or drop the setting on this kernel (see sluice doctor)"
	case errors.Is(e.Kind, ErrNoDevice):
		return "the other devices are left alone too until the setting names whole disks of this machine"
	case errors.Is(e.Kind, ErrNamespace):
		return "the old value stays until the runtime sets it"
	case errors.Is(e.Kind, ErrNotEffective):
		return "a later pass tries again; check the sets of the cgroups above it"
	}
	if text := e.hint(); text != "" {
		return "the old value stays until a later pass tries again; " + text
	}
	if errors.Is(e.Err, syscall.EROFS) || errors.Is(e.Err, syscall.EPERM) {
		return "the old value stays; give this program root and a writable cgroup mount"
	}
	return "the old value stays until a later pass tries again"
}

// hint says why the kernel probably refused a knob's value.
func (e *ChangeError) hint() string {
	switch s := specs[e.Change.Knob]; {
	case errors.Is(e.Err, syscall.EBUSY):
		return s.busy
	case errors.Is(e.Err, syscall.EINVAL):
		return s.invalid
	}
	return ""
}

// Unwrap returns the kind and the cause.
func (e *ChangeError) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// kind classifies an error of reading or writing.
func kind(err error) error {
	for _, known := range []error{ErrGone, ErrUnsupported, ErrNamespace, ErrNotEffective, ErrEmpty, ErrNoDevice, ErrConstraint} {
		if errors.Is(err, known) {
			return known
		}
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	switch errno {
	case syscall.EINVAL, syscall.ERANGE:
		return ErrConstraint
	case syscall.EBUSY, syscall.EACCES:
		return ErrOrder
	case syscall.ENOSPC:
		return ErrEmpty
	}
	return nil
}

// Refusals returns the errors that Apply has joined.
func Refusals(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
