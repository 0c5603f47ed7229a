package agent

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// cores takes every process.
type cores struct{}

func (cores) Supported() (knobs.Support, string) { return knobs.Supported, "" }

func (cores) Join(_ string, pids ...int) (moved int, err error) { return len(pids), nil }

// joins notes who joined.
type joins struct {
	cores
	pids *[]int
}

func (j joins) Join(_ string, pids ...int) (moved int, err error) {
	*j.pids = append(*j.pids, pids...)
	return len(pids), nil
}

// grouped has all LS containers in one group of cores.
func grouped(t *testing.T) func(*config.Config) {
	return func(c *config.Config) {
		g, err := annotation.Give("core-sched", "all")
		if err != nil {
			t.Fatal(err)
		}
		c.Classes.LS = annotation.Set{"core-sched": g}
	}
}

// A process id outlives its process: once the container's processes are known, the id
// that the runtime told of its first one is nobody's.
func TestOldProcessIDsJoinNothing(t *testing.T) {
	var joined []int
	s := setup{cores: joins{pids: &joined}, config: grouped(t)}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		list := func(pids ...int) {
			n.kernel.mu.Lock()
			defer n.kernel.mu.Unlock()
			n.kernel.pids = pids
		}
		if err := n.create("web", "LS", 1); err != nil {
			t.Fatal(err)
		}
		n.specs["web"].PID = 100
		list(100, 101)
		if err := n.begin("web"); err != nil {
			t.Fatal(err)
		}
		for _, pids := range [][]int{{101}, {101, 102}, nil} {
			list(pids...)
			for range joinEvery + 1 {
				n.pass()
			}
		}
		if want := []int{100, 101, 102}; !reflect.DeepEqual(joined, want) {
			t.Errorf("joined %v, want %v", joined, want)
		}
	})
}

// A container with very many processes doesn't hold the loop up: beside is what comparing
// each with each takes.
func BenchmarkNewcomers(b *testing.B) {
	pids := make([]int, 30000)
	for i := range pids {
		pids[i] = 100 + i
	}
	joined := pids[1:]
	for name, find := range map[string]func(pids, joined []int) []int{
		"sorted": newcomers,
		"each with each": func(pids, joined []int) []int {
			return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return slices.Contains(joined, pid) })
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if got := find(pids, joined); len(got) != 1 || got[0] != 100 {
					b.Fatal(got)
				}
			}
		})
	}
}

func TestJournalForgetsCores(t *testing.T) {
	file := filepath.Join(t.TempDir(), "originals")
	s := setup{cores: cores{}, originals: file, config: grouped(t)}
	inBubble(t, s, func(t *testing.T, n *testNode) {
		for i := range 20 {
			name := fmt.Sprint("web", i)
			if err := n.create(name, "LS", 1); err != nil {
				t.Fatal(err)
			}
			n.specs[name].PID = 100 + i
			if err := n.begin(name); err != nil {
				t.Fatal(err)
			}
			if i < 19 {
				n.end(name)
			}
		}
		want := n.container("web19").Cgroup
		n.stop()
		book, err := journal.Read(file, "")
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		if _, err := book.State(coresState, &paths); err != nil || !reflect.DeepEqual(paths, []string{want}) {
			t.Errorf("the journal has %q, %v", paths, err)
		}
	})
}
