package resctrl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// usual is the path at which resctrl is mounted by convention.
const usual = "/sys/fs/resctrl"

// findMount returns the path at which this process reaches the host's resctrl mount, and whether
// the mount counts bandwidth in MiB/s.
func findMount(hostRoot string) (point string, mbps bool, err error) {
	text, err := os.ReadFile(filepath.Join(hostRoot, "proc/self/mountinfo"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", false, err
	}
	point, mbps, ok := parseMountinfo(string(text))
	if !ok {
		return "", false, fmt.Errorf("%w below %s: %s", ErrNone, hostRoot, whyNone(hostRoot))
	}
	// /proc/self/mountinfo shows this process' mount namespace. A path outside of hostRoot is the
	// host's own, and hostRoot has it at the same path.
	if rel, err := filepath.Rel(hostRoot, point); err != nil || !filepath.IsLocal(rel) {
		point = filepath.Join(hostRoot, point)
	}
	return point, mbps, nil
}

func whyNone(hostRoot string) string {
	text, err := os.ReadFile(filepath.Join(hostRoot, "proc/filesystems"))
	if err == nil && slices.Contains(strings.Fields(string(text)), "resctrl") {
		return "the kernel has it; mount -t resctrl resctrl " + usual
	}
	return "the processor or the kernel doesn't have it"
}

// parseMountinfo finds resctrl in the text of /proc/<pid>/mountinfo (proc(5)).
func parseMountinfo(text string) (point string, mbps, ok bool) {
	for line := range strings.Lines(text) {
		before, after, _ := strings.Cut(line, " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if len(where) < 5 || len(what) < 3 || where[3] != "/" || what[0] != "resctrl" {
			continue
		}
		return where[4], slices.Contains(strings.Split(what[2], ","), "mba_MBps"), true
	}
	return "", false, false
}
