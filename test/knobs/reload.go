package knobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

// Reload makes systemd, which owns the cgroups, do what makes it write them: read its units again,
// set a property of a pod's slice, as the kubelet does, and start another pod's. Sluice repairs
// what that undoes.
func Reload(t *testing.T, b *Bed) {
	pods, before, after := b.adopted(t)
	mine := after.Changed(before)
	differ := func(now runtime.Dump) []string {
		return slices.DeleteFunc(now.Changed(after), func(file string) bool { return !slices.Contains(mine, file) })
	}
	for _, test := range []struct {
		name string
		act  func(*testing.T) error
	}{
		{"daemon-reload", func(*testing.T) error { return b.RT.DaemonReload() }},
		{"a pod's property", func(*testing.T) error {
			for _, pod := range pods {
				if err := pod.SetTasksMax(4000); err != nil {
					return err
				}
			}
			return nil
		}},
		{"another pod", func(t *testing.T) error {
			return b.run(t, pod("another", runtime.Resources{}, class, "LS")).Remove()
		}},
		{"daemon-reload again", func(*testing.T) error { return b.RT.DaemonReload() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			repairs := b.status(t).Counters.Drift
			must(t, test.act(t))
			began := time.Now()
			undone := differ(b.dump(t))
			await(t, func() error {
				if left := differ(b.dump(t)); len(left) > 0 {
					return fmt.Errorf("what was undone stays so: %q", left)
				}
				return nil
			})
			took := time.Since(began)
			if left := differ(b.settled(t)); len(left) > 0 {
				t.Errorf("what was repaired changes again: %q", left)
			}
			t.Logf("right after it %d of Sluice's %d files were undone: %q; all were right %s later, %d repairs are counted",
				len(undone), len(mine), bases(undone), took.Round(time.Millisecond), b.status(t).Counters.Drift-repairs)
		})
	}
	b.ends(t, pods)
}

// bases returns the files' names without their folders, each once.
func bases(files []string) []string {
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
	}
	slices.Sort(names)
	return slices.Compact(names)
}
