package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// These errors classify failures by how a caller should react.
var (
	// ErrNone says that there is no resctrl here. Go on without.
	ErrNone = errors.New("no resctrl mount")
	// ErrNoCLOSID says that all control groups of the processor are in use. Use a class' group.
	ErrNoCLOSID = errors.New("out of control groups (CLOSIDs)")
	// ErrNoRMID says that groups use all RMIDs. Go on without monitoring.
	ErrNoRMID = errors.New("out of monitoring groups (RMIDs)")
	// ErrLimbo says that removed groups still occupy RMIDs, because their data is in the cache.
	// Try again after a second or later.
	ErrLimbo = errors.New("removed groups still occupy the cache (RMIDs in limbo)")
	// ErrNoSpace says that exclusive groups leave no way of a cache for a new group.
	ErrNoSpace = errors.New("exclusive groups have all of a cache")
	// ErrNoGroup says that another program has removed the group. Set the classes up again.
	ErrNoGroup = errors.New("the group is gone")
	// ErrGone says that the process has ended.
	ErrGone = errors.New("the process has ended")
)

// Error says which operation on which group failed.
type Error struct {
	Group  string // "" is the default group
	Action string // "writing schemata \"L3:0=5\\n\""
	Status string // info/last_cmd_status, "" if it is empty
	Kind   error  // one of this package's errors; nil for any other failure
	Err    error  // the kernel's error
}

func (e *Error) Error() string {
	name := e.Group
	if name == "" {
		name = "default"
	}
	text := fmt.Sprintf("resctrl group %s: %s: %v", name, e.Action, e.Err)
	if e.Status != "" {
		text += ": " + e.Status
	}
	if e.Kind != nil {
		text += ": " + e.Kind.Error()
	}
	return text + "; " + e.next()
}

func (e *Error) next() string {
	switch {
	case errors.Is(e.Kind, ErrNoCLOSID):
		return "remove groups that nobody needs, or give fewer pods a share of their own"
	case errors.Is(e.Kind, ErrNoRMID), errors.Is(e.Kind, ErrLimbo):
		return "it is tried again later"
	case errors.Is(e.Kind, ErrNoSpace), strings.Contains(e.Status, "verlaps with exclusive"):
		return "make the exclusive groups smaller or shareable, or give the class other ways"
	case errors.Is(e.Kind, ErrNoGroup):
		return "it is made again with the next change"
	case errors.Is(e.Kind, ErrGone):
		return "nothing is left to do"
	case errors.Is(e.Err, syscall.EROFS), errors.Is(e.Err, syscall.EPERM), errors.Is(e.Err, syscall.EACCES):
		return "the old state stays; give this program root and a writable resctrl mount"
	}
	return "the old state stays"
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}

// refused explains a command that the kernel refused, by the text of its status file. The caller
// holds the lock, so that the text belongs to this command, unless another program has run one in
// between.
func (h *Host) refused(group, action string, err error) error {
	if err == nil {
		return nil
	}
	status, readErr := h.tree.Read(statusFile)
	if status = strings.TrimSpace(status); readErr != nil || status == "ok" {
		status = ""
	}
	status = strings.ReplaceAll(status, "\n", ", ")
	return &Error{Group: group, Action: action, Status: status, Kind: kind(err, status), Err: err}
}

// failed explains the failure of an operation that is not a command and so leaves the status file
// alone, for example rmdir.
func failed(group, action string, err error) error {
	return &Error{Group: group, Action: action, Kind: kind(err, ""), Err: err}
}

// kind classifies an error. ENOSPC has three meanings, which only the status distinguishes
// (rdtgroup_mkdir_ctrl_mon, fs/resctrl/rdtgroup.c); without a status, control groups are the
// likeliest to be used up.
func kind(err error, status string) error {
	switch {
	case errors.Is(err, syscall.ESRCH):
		return ErrGone
	case errors.Is(err, syscall.EBUSY):
		return ErrLimbo
	case errors.Is(err, syscall.ENOSPC) && strings.Contains(status, "RMID"):
		return ErrNoRMID
	case errors.Is(err, syscall.ENOSPC) && strings.Contains(status, "No space on"):
		return ErrNoSpace
	case errors.Is(err, syscall.ENOSPC):
		return ErrNoCLOSID
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV):
		return ErrNoGroup
	}
	return nil
}
