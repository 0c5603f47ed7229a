package cgroupfs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// The kinds of failure, by what a caller does about them.
var (
	// ErrGone: the cgroup doesn't exist (any more): its container has ended.
	ErrGone = errors.New("the cgroup is gone")
	// ErrUnsupported: the cgroup exists and has no such file.
	ErrUnsupported = errors.New("not supported here")
	// ErrConstraint (EINVAL, ERANGE): the kernel refuses the value beside what
	// the parent, the children or other files of the cgroup have.
	ErrConstraint = errors.New("the value breaks a constraint")
	// ErrOrder (EBUSY, EACCES): on v1, a child has what is taken away, or the
	// parent lacks what is given.
	ErrOrder = errors.New("the cgroups above or below stand in the way")
	// ErrEmpty (ENOSPC): a cpuset with processes can't be emptied, or its
	// parent has nothing to give.
	ErrEmpty = errors.New("a set is empty")
	// ErrNotEffective: v2 took the value, but none of it is in the parent's
	// set, so the processes run on all that the parent has.
	ErrNotEffective = errors.New("the kernel took the value but doesn't follow it")
	// ErrNoDevice (ENODEV): this machine has no such block device, or it is a
	// partition, which has no limits of its own.
	ErrNoDevice = errors.New("there is no such whole disk")
)

// ChangeError says which change failed. errors.Is tells the kind and, where the
// kernel refused, the errno.
type ChangeError struct {
	Change knobs.Change
	Kind   error // one of this package's errors; nil for any other failure
	Err    error // what the kernel said, with the file
}

func (e *ChangeError) Error() string {
	c := e.Change
	text := fmt.Sprintf("%s of %s (cgroup %s) to %s: %v", c.Knob, c.Object.Name, c.Object.Path, c.To, e.Err)
	if e.Kind != nil && !errors.Is(e.Err, e.Kind) {
		text += ": " + e.Kind.Error()
	}
	return text + "; " + e.next()
}

// next says what happens now.
func (e *ChangeError) next() string {
	switch {
	case errors.Is(e.Kind, ErrGone):
		return "its container is taken to have ended"
	case errors.Is(e.Kind, ErrUnsupported):
		return "it is left alone; enable the cgroup controller for it, or drop the setting on this kernel (see sluice doctor)"
	case errors.Is(e.Kind, ErrNoDevice):
		return "the other devices are left alone too until the setting names whole disks of this machine"
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

// hint says what a knob's refusal is likely due to.
func (e *ChangeError) hint() string {
	switch s := specs[e.Change.Knob]; {
	case errors.Is(e.Err, syscall.EBUSY):
		return s.busy
	case errors.Is(e.Err, syscall.EINVAL):
		return s.invalid
	}
	return ""
}

// Unwrap gives the kind and the cause.
func (e *ChangeError) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// kind classifies what reading or writing returned.
func kind(err error) error {
	for _, known := range []error{ErrGone, ErrUnsupported, ErrNotEffective, ErrEmpty, ErrNoDevice, ErrConstraint} {
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

// Refusals are the errors that Apply has joined.
func Refusals(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
