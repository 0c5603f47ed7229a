package agent

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sluice-dev/sluice/pkg/annotation"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/originals"
	"github.com/sluice-dev/sluice/pkg/plan"
)

// cores takes every process.
type cores struct{}

func (cores) Supported() (plan.Support, string) { return plan.Supported, "" }

func (cores) Join(_ string, pids ...int) (moved int, err error) { return len(pids), nil }

func TestJournalForgetsCores(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "originals")
	s := setup{cores: cores{}, originals: journal, config: func(c *config.Config) {
		g, err := annotation.Give("core-sched", "all")
		if err != nil {
			t.Fatal(err)
		}
		c.Classes.LS = annotation.Set{"core-sched": g}
	}}
	inBubble(t, s, func(t *testing.T, n *node) {
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
		book, err := originals.Read(journal, "")
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		if _, err := book.State(coresState, &paths); err != nil || !reflect.DeepEqual(paths, []string{want}) {
			t.Errorf("the journal has %q, %v", paths, err)
		}
	})
}
