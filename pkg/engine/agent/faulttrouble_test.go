package agent

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

// trouble is what becomes of the plugin's accesses to cgroup files. The zero value is none.
type trouble struct {
	node *faultNode

	mu       sync.Mutex
	dead     bool                          // the plugin was killed: none of its writes is made
	kills    int                           // the write at which it is killed; 0 for none
	tears    *rand.Rand                    // cuts what the journal got last before that write; nil for nothing
	journal  []byte                        // at the last write
	vanishes int                           // the access before which a cgroup vanishes; 0 for none
	victim   func()                        // makes it vanish
	answers  func(fakekernel.Access) error // nil if the kernel answers
}

// meet is called before each access.
func (t *trouble) meet(a fakekernel.Access) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.Write && t.kills > 0 {
		if t.kills--; t.kills == 0 {
			t.die()
		} else if t.tears != nil {
			t.journal, _ = os.ReadFile(t.node.o.Originals) // none is empty
		}
	}
	if t.vanishes > 0 {
		if t.vanishes--; t.vanishes == 0 {
			t.victim()
		}
	}
	switch {
	case t.dead && a.Write:
		return syscall.EIO
	case t.answers != nil:
		return t.answers(a)
	}
	return nil
}

// kill ends the plugin now.
func (t *trouble) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.die()
}

func (t *trouble) die() {
	t.dead, t.node.atDeath = true, t.node.files()
	now := t.node.atDeath[t.node.o.Originals]
	if added := len(now) - len(t.journal); t.tears != nil && added > 0 && bytes.HasPrefix(now, t.journal) {
		t.node.atDeath[t.node.o.Originals] = now[:len(t.journal)+t.tears.IntN(added)]
	}
}

// mayTakeLong reports whether the kernel migrates pages for a write, or reclaims memory.
func (f *faultNode) mayTakeLong(a fakekernel.Access) bool {
	switch a.File {
	case "cpuset.mems":
		return a.Write
	case "memory.high", "memory.max", "memory.limit_in_bytes":
		have, _ := f.ReadFile(a.Dir, a.File)
		was, unlimited := strconv.ParseInt(have, 10, 64)
		to, raised := strconv.ParseInt(strings.TrimSpace(a.Value), 10, 64)
		return a.Write && raised == nil && to >= 0 && (unlimited != nil || to < was)
	}
	return false
}
