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

// trouble is what becomes of the plugin's accesses to cgroup files. Its goroutines and the test's share it.
type trouble struct {
	node *faultNode

	mu      sync.Mutex
	planned                   // what is to happen
	atDeath map[string][]byte // the files on the disk when the plugin was killed: none of its writes is made since; nil while it lives
}

// planned is what is to happen to accesses. The zero value is nothing.
type planned struct {
	kills    int                           // the write at which it is killed; 0 for none
	tears    *rand.Rand                    // cuts what the journal got last before that write; nil for nothing
	journal  []byte                        // at the last write
	vanishes int                           // the access before which a cgroup vanishes; 0 for none
	victim   func()                        // makes it vanish
	answers  func(fakekernel.Access) error // nil if the kernel answers
}

// plan decides what is to happen from now on.
func (t *trouble) plan(p planned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.planned = p
}

// over ends all trouble. A plugin lives again.
func (t *trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.planned, t.atDeath = planned{}, nil
}

// deathbed returns the files on the disk when the plugin was killed; nil while it lives.
func (t *trouble) deathbed() map[string][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.atDeath
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
	case t.atDeath != nil && a.Write:
		return syscall.EIO
	case t.answers != nil:
		return t.answers(a)
	}
	return nil
}

// kill ends the plugin now, if it lives.
func (t *trouble) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.atDeath == nil {
		t.die()
	}
}

func (t *trouble) die() {
	t.atDeath = t.node.files()
	now := t.atDeath[t.node.o.Originals]
	if added := len(now) - len(t.journal); t.tears != nil && added > 0 && bytes.HasPrefix(now, t.journal) {
		t.atDeath[t.node.o.Originals] = now[:len(t.journal)+t.tears.IntN(added)]
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
