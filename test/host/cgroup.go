package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is a cgroup hierarchy. A machine with v1, or a hybrid one, has several.
type Mount struct {
	Dir         string
	V2          bool
	Controllers []string // in v1 the controllers of the mount; in v2 those that no v1 hierarchy has
}

// Mounts reads the cgroup hierarchies from /proc/self/mountinfo, see proc(5).
func Mounts() ([]Mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []Mount
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		m := Mount{Dir: left[4], V2: right[0] == "cgroup2"}
		switch right[0] {
		case "cgroup":
			m.Controllers = strings.Split(right[2], ",")
		case "cgroup2":
			list, err := os.ReadFile(filepath.Join(m.Dir, "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			m.Controllers = strings.Fields(string(list))
		default:
			continue
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted")
	}
	return all, nil
}

// Tree is a cgroup of the same name in every hierarchy that holds everything of a test.
type Tree struct {
	Name       string
	Mounts     []Mount
	HighWeight bool // 16 times the usual CPU weight
}

// Processes is the cgroup of the programs that a test starts, such as containerd with its shims
// and the plugin. In cgroup v1 they are in it in the hierarchy of membership, which limits
// nothing, and also in that of CPU time if the tree has a high weight.
func (t *Tree) Processes() string { return filepath.Join(t.Name, "processes") }

// membership returns the hierarchy in which all processes of the tree are found.
func (t *Tree) membership() Mount { return t.Of("pids") }

// Adopt moves a process into the cgroup for processes.
func (t *Tree) Adopt(pid int) error {
	err := t.membership().write(t.Processes(), "cgroup.procs", strconv.Itoa(pid))
	if t.HighWeight && !t.V2() {
		err = errors.Join(err, t.Of("cpu").write(t.Processes(), "cgroup.procs", strconv.Itoa(pid)))
	}
	return err
}

// Enter moves a process into a cgroup of the hierarchy that has the controller.
func (t *Tree) Enter(cgroup, controller string, pid int) error {
	return t.Of(controller).write(cgroup, "cgroup.procs", strconv.Itoa(pid))
}

// Create makes the cgroup and its parents in every hierarchy. In v1, a new cpuset is empty and
// accepts no process, so it gets its parent's values.
func (t *Tree) Create(path string) error {
	for _, m := range t.Mounts {
		var parent string
		for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if err := m.delegate(parent); err != nil {
				return err
			}
			child := filepath.Join(parent, part)
			if err := os.Mkdir(m.Path(child), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if !m.V2 && slices.Contains(m.Controllers, "cpuset") {
				if err := errors.Join(m.inherit(parent, child, "cpuset.cpus"), m.inherit(parent, child, "cpuset.mems")); err != nil {
					return err
				}
			}
			parent = child
		}
	}
	return nil
}

// Path returns the path of a file or cgroup of the hierarchy.
func (m Mount) Path(elements ...string) string {
	return filepath.Join(append([]string{m.Dir}, elements...)...)
}

func (m Mount) write(cgroup, file, value string) error {
	return os.WriteFile(m.Path(cgroup, file), []byte(value), 0)
}

func (m Mount) inherit(parent, child, file string) error {
	own, err := os.ReadFile(m.Path(child, file))
	if err != nil || strings.TrimSpace(string(own)) != "" {
		return err
	}
	value, err := os.ReadFile(m.Path(parent, file))
	if err != nil {
		return err
	}
	return m.write(child, file, strings.TrimSpace(string(value)))
}

// delegate enables the controllers that pods use for a v2 cgroup's children.
func (m Mount) delegate(cgroup string) error {
	if !m.V2 {
		return nil
	}
	wanted := []string{"cpu", "cpuset", "memory", "io", "pids"}
	if slices.Contains(m.Controllers, "memory") {
		// A kubelet on cgroup v2 takes no root without it, where the machine has it
		// (cgroupV2impl.Validate). A hybrid machine's unified hierarchy stays as it is.
		wanted = append(wanted, "hugetlb")
	}
	for _, controller := range wanted {
		if slices.Contains(m.Controllers, controller) {
			if err := m.write(cgroup, "cgroup.subtree_control", "+"+controller); err != nil {
				return err
			}
		}
	}
	return nil
}

// Find returns the hierarchy and path of a cgroup's file: that of its controller in v1, or else
// v2's (pressure on a hybrid machine).
func (t *Tree) Find(cgroup, file string) (string, error) {
	controller, _, _ := strings.Cut(file, ".")
	for _, v2 := range []bool{false, true} {
		for _, m := range t.Mounts {
			if m.V2 != v2 || !v2 && !slices.Contains(m.Controllers, controller) {
				continue
			}
			if _, err := os.Stat(m.Path(cgroup, file)); err == nil {
				return m.Path(cgroup, file), nil
			}
		}
	}
	return "", fmt.Errorf("cgroup %s has no file %s: %w", cgroup, file, fs.ErrNotExist)
}

// Read returns the text of a file of the cgroup without surrounding blanks.
func (t *Tree) Read(cgroup, file string) (string, error) {
	path, err := t.Find(cgroup, file)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// Write writes a file of the cgroup.
func (t *Tree) Write(cgroup, file, value string) error {
	path, err := t.Find(cgroup, file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("%s = %q: %w", path, value, err)
	}
	return nil
}

// V2 reports whether cpu and cpuset are in the unified hierarchy.
func (t *Tree) V2() bool { return t.Of("cpuset").V2 }

// Of returns the hierarchy that has the controller.
func (t *Tree) Of(controller string) Mount {
	for _, m := range t.Mounts {
		if slices.Contains(m.Controllers, controller) {
			return m
		}
	}
	return t.Mounts[0]
}

// PIDs lists the processes in the cgroup and below it.
func (t *Tree) PIDs(cgroup string) ([]int, error) {
	var pids []int
	for _, dir := range Below(t.membership().Path(cgroup)) {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if Gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// KillAll ends every process in the cgroup and below it.
func (t *Tree) KillAll(cgroup string) error {
	return Poll("the processes of "+cgroup+" to end", func() error {
		pids, err := t.PIDs(cgroup)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		if len(pids) > 0 {
			return fmt.Errorf("still there: %v", pids)
		}
		return nil
	})
}

// Remove removes the cgroup and all below it from every hierarchy.
func (t *Tree) Remove(cgroup string) error {
	return Poll("cgroup "+cgroup+" to go", func() error {
		var errs []error
		for _, m := range t.Mounts {
			dirs := Below(m.Path(cgroup))
			slices.Reverse(dirs)
			for _, dir := range dirs {
				if err := os.Remove(dir); err != nil && !Gone(err) {
					errs = append(errs, err)
				}
			}
		}
		return errors.Join(errs...)
	})
}

// Below lists the folder and all folders in it, parents first, or nothing if it doesn't exist or
// is removed meanwhile.
func Below(root string) []string {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// Gone reports whether the error says that a cgroup, or a file of one, no longer exists.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// Thaw lets every frozen process in the cgroup and below it continue. cgroup v1 delays even
// SIGKILL for a frozen one.
func (t *Tree) Thaw(cgroup string) error {
	m := t.Of("freezer")
	if m.V2 {
		return nil
	}
	for _, dir := range Below(m.Path(cgroup)) {
		if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0); err != nil && !Gone(err) {
			return err
		}
	}
	return nil
}

// CPUTime returns the CPU time that a cgroup has used.
func (t *Tree) CPUTime(cgroup string) (time.Duration, error) {
	file, unit := "cpuacct.usage", time.Nanosecond
	if t.V2() {
		file, unit = "cpu.stat", time.Microsecond
	}
	text, err := t.Read(cgroup, file)
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseInt(strings.TrimPrefix(line, "usage_usec "), 10, 64)
	return time.Duration(n) * unit, err
}

// UnmountBelow unmounts everything in the folder, the deepest mount first.
func UnmountBelow(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	slices.Reverse(points)
	var errs []error
	for _, point := range points {
		err := unix.Unmount(point, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			continue // another test process has removed it
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
