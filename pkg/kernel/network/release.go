package network

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Release ends the limits that Pod.Limit has set in all network namespaces of the host that a process is in or
// whose file is mounted, but not those of pods to keep. It returns in how many there were some. With dry it only
// counts them.
func (h *Host) Release(keep []ID, dry bool) (limited int, err error) {
	return h.eachLimited(keep, func(p *Pod) error {
		if dry {
			return nil
		}
		return p.Release()
	})
}

// Lower lowers the limits that Pod.Limit has set to that many bits per second where they are higher, in all namespaces
// that Release knows of. It returns in how many there were limits.
func (h *Host) Lower(bits int64) (limited int, err error) {
	return h.eachLimited(nil, func(p *Pod) error { return p.lower(bits) })
}

// eachLimited calls a function for each network namespace with limits, but not for those to keep, and returns how many
// it has found.
func (h *Host) eachLimited(keep []ID, do func(*Pod) error) (limited int, err error) {
	paths, err := h.namespaces()
	if err != nil {
		return 0, err
	}
	seen := map[ID]bool{h.own: true}
	for _, id := range keep {
		seen[id] = true
	}
	var errs []error
	for _, path := range paths {
		was, err := h.ifLimited(path, seen, do)
		if was {
			limited++
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("network namespace %s: %w", h.path(path), err))
		}
	}
	return limited, errors.Join(errs...)
}

// namespaces lists files of all network namespaces, some of them several times, below the root. A pod whose containers have all
// ended has no process on CRI-O, which then mounts the file of its namespace alone.
func (h *Host) namespaces() (paths []string, err error) {
	entries, err := os.ReadDir(h.path("proc"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			paths = append(paths, "proc/"+e.Name()+"/ns/net")
		}
	}
	text, err := os.ReadFile(h.path(h.process + "mountinfo")) //nolint:gosec // G703: a fixed name
	if err != nil {
		return nil, err
	}
	mounted, err := parseMounted(bytes.NewReader(text))
	for _, path := range mounted {
		paths = append(paths, h.outside(path))
	}
	return paths, err
}

// parseMounted lists where /proc/PID/mountinfo has network namespaces, whose root is such as net:[4026532285].
func parseMounted(from io.Reader) (paths []string, err error) {
	all, err := mountinfo.GetMountsFromReader(from, func(i *mountinfo.Info) (skip, stop bool) {
		return i.FSType != "nsfs" || !strings.HasPrefix(i.Root, "net:["), false
	})
	for _, m := range all {
		paths = append(paths, m.Mountpoint)
	}
	return paths, err
}

// ifLimited calls a function for a network namespace that has limits and has not been seen.
func (h *Host) ifLimited(path string, seen map[ID]bool, do func(*Pod) error) (limited bool, err error) {
	namespace, err := os.Open(h.path(path)) //nolint:gosec // G703: the kernel names the path
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
	if limited, err = pod.IsLimited(); err != nil || !limited {
		return limited, err
	}
	return limited, do(pod)
}
