package cgroupfs

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// mostNested limits how many nested cgroups of a container Sluice reads. A container that may
// create cgroups (privileged, or with containerd's cgroup_writable) could otherwise delay all
// others.
const mostNested = 2048

// Processes lists the processes in a cgroup and its descendants; it lists none if the cgroup
// doesn't exist.
func (d *Driver) Processes(dir string) ([]int, error) {
	return d.membersOf(dir, procsFile)
}

// AllThreads lists the threads in a cgroup and its descendants; it lists none if the cgroup doesn't
// exist. 0 stands for a thread outside of this process' PID namespace.
func (d *Driver) AllThreads(dir string) ([]int, error) {
	if d.members().v2 {
		return d.membersOf(dir, "cgroup.threads")
	}
	return d.membersOf(dir, "tasks")
}

func (d *Driver) membersOf(dir, file string) ([]int, error) {
	found := processes{file: file}
	err := found.in(d.members(), dir)
	if errors.Is(err, ErrGone) {
		err = nil
	}
	return found.pids, err
}

// members returns the hierarchy from which to read the processes of a cgroup. It avoids v1's
// cpuset if there is another: a process leaves its cpuset when that loses its last CPU (see
// Rejoin), and stays in its cgroup in every other hierarchy.
func (d *Driver) members() *hierarchy {
	if d.cpuset != nil && d.cpuset.v2 {
		return d.cpuset
	}
	for _, h := range []*hierarchy{d.cpu, d.memory} {
		if h != nil && h != d.cpuset {
			return h
		}
	}
	return d.cpuset
}

const procsFile = "cgroup.procs"

// processes collects what the file of each cgroup lists, procsFile or one of threads.
type processes struct {
	file    string
	pids    []int
	at      []string // the cgroup of each process
	cgroups int      // number of cgroups read
}

func (p *processes) in(h *hierarchy, dir string) error {
	if p.cgroups++; p.cgroups > mostNested {
		return fmt.Errorf("more than %d cgroups are nested in a container: the processes in %s and in others are not known", mostNested, dir)
	}
	return h.with(dir, func(c *cgroup) error {
		text, err := c.list(p.file)
		if err != nil {
			return err
		}
		for field := range strings.FieldsSeq(text) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return fmt.Errorf("%s of %s: %q is not a process", p.file, dir, field)
			}
			p.pids, p.at = append(p.pids, pid), append(p.at, dir)
		}
		if c.folder.Childless() {
			return nil
		}
		children, err := c.children()
		if err != nil {
			return err
		}
		for _, child := range children {
			if err := p.in(h, child); err != nil && !errors.Is(err, ErrGone) {
				return err
			}
		}
		return nil
	})
}

// list reads a file of records to its end: the kernel returns at most a page per read.
func (c *cgroup) list(file string) (string, error) {
	f, err := c.folder.Open(file)
	if err != nil {
		return "", c.missing(err)
	}
	defer f.Close() //nolint:errcheck // the file was opened for reading
	text, err := io.ReadAll(io.NewSectionReader(f, 0, math.MaxInt64))
	return string(text), c.missing(err)
}
