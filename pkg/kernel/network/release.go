package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
)

// Release ends the limits that Pod.Limit has set in all network namespaces of the host that a process is in, but
// not those of pods to keep. It returns in how many there were some. With dry it only counts them.
func (h *Host) Release(keep []ID, dry bool) (limited int, err error) {
	entries, err := os.ReadDir(h.path("proc"))
	if err != nil {
		return 0, err
	}
	seen := map[ID]bool{h.own: true}
	for _, id := range keep {
		seen[id] = true
	}
	var errs []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		was, err := h.release(pid, seen, dry)
		if was {
			limited++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network of process %d: %w", pid, err))
		}
	}
	return limited, errors.Join(errs...)
}

// release ends the limits in the network namespace of a process, unless it has been seen.
func (h *Host) release(pid int, seen map[ID]bool, dry bool) (limited bool, err error) {
	namespace, err := os.Open(h.path("proc/" + strconv.Itoa(pid) + "/ns/net")) //nolint:gosec // G703: a number
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil // the process has ended; where nobody may look, nobody has set a limit
	}
	if err != nil {
		return false, err
	}
	defer namespace.Close()
	id, err := idOf(namespace)
	if err != nil || seen[id] {
		return false, err
	}
	seen[id] = true
	pod, err := h.enter(namespace)
	if err != nil {
		return false, err
	}
	defer pod.Close()
	if limited, err = pod.IsLimited(); err != nil || !limited || dry {
		return limited, err
	}
	return limited, pod.Release()
}
