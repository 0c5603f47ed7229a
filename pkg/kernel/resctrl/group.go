package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// These are the names of the groups that this package makes.
const (
	prefix    = "sluice-"
	podPrefix = prefix + "pod-"
)

// DefaultClass is the class of the default group, which holds everything that is in no other
// group: system daemons, the kubelet, and pods without a class. goresctrl uses the same name, for
// example in the RDT configuration of containerd and CRI-O.
const DefaultClass = "system/default"

// ClassGroup returns the group of a class, which runtimes also accept as rdt.closid.
func ClassGroup(class string) string {
	if class == DefaultClass {
		return ""
	}
	return prefix + class
}

// PodGroup returns the name of a pod's own group.
func PodGroup(uid string) string { return podPrefix + uid }

// CheckClass returns an error if no group can have the name of the class.
func CheckClass(name string) error {
	switch {
	case name == DefaultClass:
		return nil
	case name == "" || len(name) > 200 || strings.ContainsAny(name, "/\n\x00"):
		return fmt.Errorf("RDT class %q: a class is named as a folder, with 1 to 200 characters, or %s", name, DefaultClass)
	case strings.HasPrefix(prefix+name, podPrefix):
		return fmt.Errorf("RDT class %q: names beginning with pod- are taken by pods' own groups", name)
	}
	return nil
}

// Group is the control group of a class.
type Group struct {
	Class   string
	Name    string
	Changed string // the schemata lines that were written, "" if none had to change
}

// Setup makes the classes' groups or changes those that exist, and returns them. A failure doesn't
// stop the rest: a class that asks for something that this machine lacks has its group without it,
// and a class for which there is no CLOSID has no group. In an existing group, Setup removes the
// limits that the class doesn't set. A new group keeps the kernel's initial values there, which
// leave exclusive groups alone. maxMBps is the memory bandwidth of one cache id, 0 if unknown.
//
// A further call repairs what other programs have changed.
func (h *Host) Setup(classes []schemata.Class, maxMBps int) ([]Group, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var groups []Group
	var errs []error
	for _, c := range classes {
		if err := CheckClass(c.Name); err != nil {
			errs = append(errs, err)
			continue
		}
		want, lacking := h.info.Resolve(&c, maxMBps)
		name := ClassGroup(c.Name)
		changed, err := h.ensure(name, want)
		errs = append(errs, lacking, err)
		if err == nil {
			groups = append(groups, Group{Class: c.Name, Name: name, Changed: changed})
		}
	}
	return groups, errors.Join(errs...)
}

// ensure makes a group or changes the existing one, and returns what it wrote.
func (h *Host) ensure(group string, want schemata.Schemata) (changed string, err error) {
	found := true
	if group != "" {
		err := h.tree.Mkdir(group)
		found = errors.Is(err, fs.ErrExist)
		if err != nil && !found {
			return "", h.refused(group, "making it", err)
		}
	}
	if found {
		all := h.info.Unlimited()
		maps.Copy(all, want)
		want = all
	}
	now, err := h.read(group)
	if err == nil {
		changed = want.Beyond(now).String()
		err = h.write(group, changed)
	}
	if err != nil && !found {
		err = errors.Join(err, h.remove(group)) // CLOSIDs are scarce, so a group that doesn't do what its class asks for is removed
	}
	return changed, err
}

// Own makes a pod's own group or changes the existing one, and returns the group's name. The name
// is "" if there is no group: after ErrLimbo try again later, and after any other error, such as
// ErrNoCLOSID, use the group of a class. An error beside a name says which part of the share this
// machine lacks.
func (h *Host) Own(uid string, share workload.RDTShare, maxMBps int) (string, error) {
	c, err := ownClass(uid, share)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.info.Bandwidths[schemata.SMBA]; !ok {
		c.SMBA = nil
	}
	want, lacking := h.info.Resolve(c, maxMBps)
	if len(want) == 0 && lacking != nil {
		return "", lacking
	}
	if _, err := h.ensure(PodGroup(uid), want); err != nil {
		return "", errors.Join(lacking, err)
	}
	return PodGroup(uid), lacking
}

// checkUID rejects a UID that is no valid folder name, because it would name another group.
func checkUID(uid string) error {
	if uid == "" || len(uid) > 200 || strings.ContainsAny(uid, "/\n\x00") {
		return fmt.Errorf("%.80q is no uid of a pod", uid)
	}
	return nil
}

func ownClass(uid string, share workload.RDTShare) (*schemata.Class, error) {
	if err := checkUID(uid); err != nil {
		return nil, err
	}
	c := &schemata.Class{Name: "of pod " + uid}
	if share.CacheFrom != 0 || share.CacheTo != 0 {
		c.L3 = map[int]schemata.Cache{schemata.All: {Range: schemata.Range{From: share.CacheFrom, To: share.CacheTo}}}
	}
	if share.Bandwidth != 0 {
		all := map[int]schemata.Bandwidth{schemata.All: {Percent: share.Bandwidth}}
		c.MB, c.SMBA = all, all
	}
	return c, nil
}

// Release removes a pod's own group. The kernel moves remaining processes to the default group.
// A missing group is no error.
func (h *Host) Release(uid string) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.remove(PodGroup(uid))
}

func (h *Host) remove(group string) error {
	if err := h.tree.Rmdir(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(group, "removing it", err)
	}
	return nil
}

// Prune removes the groups of pods and of classes that are not in the lists.
func (h *Host) Prune(livePods, classes []string) error {
	keep := make([]string, 0, len(livePods)+len(classes))
	for _, uid := range livePods {
		keep = append(keep, PodGroup(uid))
	}
	for _, c := range classes {
		keep = append(keep, ClassGroup(c))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removeBut(keep)
}

func (h *Host) removeBut(keep []string) error {
	groups, err := h.own()
	errs := []error{err}
	for _, g := range groups {
		if !slices.Contains(keep, g) {
			errs = append(errs, h.remove(g))
		}
	}
	return errors.Join(errs...)
}

// own lists the groups that this package has created.
func (h *Host) own() ([]string, error) {
	names, err := h.tree.List(".")
	if err != nil {
		return nil, failed("", "listing the groups", err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// Originals is the record for Restore. Save it to disk before the first Setup.
type Originals struct {
	Default string `json:"default"` // the default group's schemata
}

// Originals returns the present values.
func (h *Host) Originals() (Originals, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.read("")
	return Originals{Default: s.String()}, err
}

// Restore removes the groups that this package has created, even if they have tasks, and
// restores the default group; without a record, the default group doesn't change.
func (h *Host) Restore(o Originals) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := []error{h.pruneWatches(nil), h.removeBut(nil)}
	want, err := schemata.Parse(o.Default)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("the record of the default group's schemata: %w", err))...)
	}
	now, err := h.read("")
	if err == nil {
		err = h.write("", want.Beyond(now).String())
	}
	return errors.Join(append(errs, err)...)
}
