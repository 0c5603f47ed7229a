package runtime

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
)

// mount is one cgroup hierarchy. On a v1 or hybrid machine there are several.
type mount struct {
	dir         string
	v2          bool
	controllers []string // v1: those of the mount; v2: those that are not taken by v1
}

// mounts reads the cgroup hierarchies from /proc/self/mountinfo, see proc(5).
func mounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []mount
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		m := mount{dir: left[4], v2: right[0] == "cgroup2"}
		switch right[0] {
		case "cgroup":
			m.controllers = strings.Split(right[2], ",")
		case "cgroup2":
			list, err := os.ReadFile(filepath.Join(m.dir, "cgroup.controllers"))
			if err != nil {
				return nil, err
			}
			m.controllers = strings.Fields(string(list))
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

// tree is the cgroup, of the same name in every hierarchy, that holds all of
// one Runtime.
type tree struct {
	name       string
	mounts     []mount
	highWeight bool // see Options
}

// processes is the cgroup of containerd, its shims and the plugin. In cgroup v1 they are in it
// in the hierarchy of membership, which limits nothing, and also in that of CPU time if the tree
// has a high weight.
func (t *tree) processes() string { return filepath.Join(t.name, "processes") }

// membership is the hierarchy in which all processes of the tree are found.
func (t *tree) membership() mount { return t.of("pids") }

func (t *tree) adopt(pid int) error {
	err := t.membership().write(t.processes(), "cgroup.procs", strconv.Itoa(pid))
	if t.highWeight && !t.v2() {
		err = errors.Join(err, t.of("cpu").write(t.processes(), "cgroup.procs", strconv.Itoa(pid)))
	}
	return err
}

// create makes the cgroup in every hierarchy, with its parents. In v1 a new
// cpuset is empty and can hold nobody: it gets its parent's values.
func (t *tree) create(path string) error {
	for _, m := range t.mounts {
		var parent string
		for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if err := m.delegate(parent); err != nil {
				return err
			}
			child := filepath.Join(parent, part)
			if err := os.Mkdir(m.path(child), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if !m.v2 && slices.Contains(m.controllers, "cpuset") {
				if err := errors.Join(m.inherit(parent, child, "cpuset.cpus"), m.inherit(parent, child, "cpuset.mems")); err != nil {
					return err
				}
			}
			parent = child
		}
	}
	return nil
}

func (m mount) path(elements ...string) string {
	return filepath.Join(append([]string{m.dir}, elements...)...)
}

func (m mount) write(cgroup, file, value string) error {
	return os.WriteFile(m.path(cgroup, file), []byte(value), 0)
}

func (m mount) inherit(parent, child, file string) error {
	own, err := os.ReadFile(m.path(child, file))
	if err != nil || strings.TrimSpace(string(own)) != "" {
		return err
	}
	value, err := os.ReadFile(m.path(parent, file))
	if err != nil {
		return err
	}
	return m.write(child, file, strings.TrimSpace(string(value)))
}

// delegate gives a v2 cgroup's children the controllers that pods use.
func (m mount) delegate(cgroup string) error {
	if !m.v2 {
		return nil
	}
	for _, controller := range []string{"cpu", "cpuset", "memory", "io", "pids"} {
		if slices.Contains(m.controllers, controller) {
			if err := m.write(cgroup, "cgroup.subtree_control", "+"+controller); err != nil {
				return err
			}
		}
	}
	return nil
}

// find is the hierarchy and path of a cgroup's file: v1's under its
// controller, v2's otherwise (pressure of a hybrid machine).
func (t *tree) find(cgroup, file string) (string, error) {
	controller, _, _ := strings.Cut(file, ".")
	for _, v2 := range []bool{false, true} {
		for _, m := range t.mounts {
			if m.v2 != v2 || !v2 && !slices.Contains(m.controllers, controller) {
				continue
			}
			if _, err := os.Stat(m.path(cgroup, file)); err == nil {
				return m.path(cgroup, file), nil
			}
		}
	}
	return "", fmt.Errorf("cgroup %s has no file %s: %w", cgroup, file, fs.ErrNotExist)
}

func (t *tree) read(cgroup, file string) (string, error) {
	path, err := t.find(cgroup, file)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

func (t *tree) write(cgroup, file, value string) error {
	path, err := t.find(cgroup, file)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("%s = %q: %w", path, value, err)
	}
	return nil
}

// v2 tells whether cpu and cpuset are in the unified hierarchy.
func (t *tree) v2() bool { return t.of("cpuset").v2 }

// of is the hierarchy that has the controller.
func (t *tree) of(controller string) mount {
	for _, m := range t.mounts {
		if slices.Contains(m.controllers, controller) {
			return m
		}
	}
	return t.mounts[0]
}

// pids lists the processes in the cgroup and below it.
func (t *tree) pids(cgroup string) ([]int, error) {
	var pids []int
	for _, dir := range below(t.membership().path(cgroup)) {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if gone(err) {
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

// killAll ends every process in the cgroup and below it.
func (t *tree) killAll(cgroup string) error {
	return poll("the processes of "+cgroup+" to end", func() error {
		pids, err := t.pids(cgroup)
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

// remove removes the cgroup and all below it from every hierarchy.
func (t *tree) remove(cgroup string) error {
	return poll("cgroup "+cgroup+" to go", func() error {
		var errs []error
		for _, m := range t.mounts {
			dirs := below(m.path(cgroup))
			slices.Reverse(dirs)
			for _, dir := range dirs {
				if err := os.Remove(dir); err != nil && !gone(err) {
					errs = append(errs, err)
				}
			}
		}
		return errors.Join(errs...)
	})
}

// below lists the folder and all folders in it, parents first; none where it
// doesn't exist or goes away meanwhile.
func below(root string) []string {
	var dirs []string
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}
