package cgroupfs_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// migrating is a cpuset hierarchy of v2 whose writes last until the pages of another cgroup have
// moved. They take effect at once or, if locked is set, at the end.
type migrating struct {
	mu     sync.Mutex
	texts  map[string]string
	moved  chan struct{} // nil if no pages move
	locked bool
}

func (m *migrating) Mkdir(string) error          { return nil }
func (m *migrating) Remove(string) error         { return nil }
func (m *migrating) String() string              { return "a hierarchy in which pages move" }
func (m *migrating) Children() ([]string, error) { return nil, nil }
func (m *migrating) Childless() bool             { return true }
func (m *migrating) Close() error                { return nil }

func (m *migrating) Write(file, value string) error {
	m.mu.Lock()
	moved, locked := m.moved, m.locked
	m.mu.Unlock()
	if moved != nil && locked {
		<-moved
	}
	m.mu.Lock()
	m.texts[file], m.texts[file+".effective"] = value, value
	m.mu.Unlock()
	if moved != nil && !locked {
		<-moved
	}
	return nil
}

// liveFile shows the text at the time of the read.
type liveFile struct {
	m    *migrating
	name string
}

func (f liveFile) Close() error { return nil }
func (f liveFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return strings.NewReader(f.m.texts[f.name]+"\n").ReadAt(p, off)
}

// A tree and a folder each have a method Open, so they need different types here.
type (
	treeOf   struct{ *migrating }
	folderOf struct{ *migrating }
)

func (t treeOf) Open(string) (cgroupfs.Folder, error)      { return folderOf(t), nil }
func (f folderOf) Open(name string) (cgroupfs.File, error) { return liveFile{f.migrating, name}, nil }

// While pages move, CPUs are written as quickly as usual. A write that the kernel doesn't begin is
// given up, and no other is started behind it.
func TestCPUsDontWaitForPages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &migrating{texts: map[string]string{"cpuset.cpus": "0-7", "cpuset.cpus.effective": "0-7"}}
		driver, err := cgroupfs.OpenTrees(fstest.MapFS{}, cgroupfs.Mount{Tree: treeOf{m}, V2: true, Controllers: []string{"cpuset", "cpu"}})
		if err != nil {
			t.Fatal(err)
		}
		set := func(cpus string) (time.Duration, error) {
			began := time.Now()
			err := driver.Apply([]knobs.Change{{Object: knobs.Object{Path: "/a", Name: "a"}, Knob: knobs.CPUs, To: knobs.CPUSet(cpuset.MustParse(cpus))}})
			return time.Since(began), err
		}
		shows := func(want string) {
			t.Helper()
			if have, err := driver.Read("/a", knobs.CPUs); err != nil || have != knobs.Value(knobs.CPUSet(cpuset.MustParse(want))) {
				t.Errorf("the kernel shows %v, %v, want %s", have, err, want)
			}
		}
		m.moved = make(chan struct{})
		for _, cpus := range []string{"0-3", "4-7"} {
			if took, err := set(cpus); err != nil || took > 10*time.Millisecond {
				t.Errorf("took %s, %v", took, err)
			}
			shows(cpus)
		}
		m.mu.Lock()
		m.locked = true
		m.mu.Unlock()
		if took, err := set("1"); !errors.Is(err, cgroupfs.ErrBusy) || took > 60*time.Millisecond {
			t.Errorf("given up after %s, %v", took, err)
		}
		if took, err := set("2"); !errors.Is(err, cgroupfs.ErrBusy) || took > 0 {
			t.Errorf("behind it: %s, %v", took, err)
		}
		close(m.moved)
		synctest.Wait()
		shows("1")
		m.mu.Lock()
		m.moved = nil
		m.mu.Unlock()
		if _, err := set("2"); err != nil {
			t.Error(err)
		}
		shows("2")
	})
}
