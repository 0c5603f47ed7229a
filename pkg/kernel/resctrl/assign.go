package resctrl

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"syscall"
)

// Place says in which groups a container's threads belong.
type Place struct {
	Group string // a control group; "" for the default
	Watch string // the container's monitoring group in it, see Watch; "" for none
}

// Assign moves a process' threads to their place. Children and threads that they create later
// start there, so one call before a container's first instruction is enough. ErrGone says that
// the process has ended.
func (h *Host) Assign(to Place, pid int) error {
	return h.AssignAll(to, func() ([]int, error) { return h.threads(pid) })
}

// passes limits how often AssignAll lists threads. A container that creates threads all the
// time must not delay others.
const passes = 8

// AssignAll moves all threads of a running container to their place. It calls threads until
// that lists no new one, because a thread that has not been moved yet may have created another.
func (h *Host) AssignAll(to Place, threads func() ([]int, error)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := []string{within(to.Group, tasksFile)}
	if to.Watch != "" {
		// In this order: the kernel refuses a task of another control group
		// (__rdtgroup_move_task, fs/resctrl/rdtgroup.c).
		names = append(names, path.Join(to.Group, monGroups, watchPrefix+to.Watch, tasksFile))
	}
	var files []io.WriteCloser
	for _, name := range names {
		file, err := h.tree.Writer(name)
		if err != nil {
			return failed(to.Group, "opening "+name, err)
		}
		defer func() { _ = file.Close() }() // each write has returned its own error
		files = append(files, file)
	}
	done := map[int]bool{}
	for range passes {
		list, err := threads()
		if err != nil {
			return err
		}
		before := len(done)
		for _, tid := range list {
			if done[tid] || tid <= 0 { // for the kernel 0 stands for the writer itself
				continue
			}
			done[tid] = true
			if err := h.move(to.Group, files, tid); err != nil {
				return err
			}
		}
		if len(done) == before {
			break
		}
	}
	return nil
}

func (h *Host) move(group string, files []io.WriteCloser, tid int) error {
	text := strconv.Itoa(tid)
	for _, file := range files {
		_, err := io.WriteString(file, text)
		if errors.Is(err, syscall.ESRCH) {
			return nil // the thread has ended since it was listed
		}
		if err != nil {
			return h.refused(group, "moving thread "+text, err)
		}
	}
	return nil
}

func (h *Host) threads(pid int) ([]int, error) {
	id := strconv.Itoa(pid)
	names, err := h.proc.List(path.Join(id, "task"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || err == nil && len(names) == 0 {
		return nil, &Error{Action: "listing the threads of process " + id, Kind: ErrGone, Err: syscall.ESRCH}
	}
	if err != nil {
		return nil, err
	}
	tids := make([]int, 0, len(names))
	for _, name := range names {
		if tid, err := strconv.Atoi(name); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}
