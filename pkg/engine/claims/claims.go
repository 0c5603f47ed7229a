// Package claims reserves CPUs for the resource claims of Kubernetes. The ledger has the reservations
// in memory, and a CDI spec for each claim has them in a file: the runtime needs the spec to give the
// claim to a container, and a later process of the plugin restores the reservation from it. So a
// claim is prepared exactly as long as its spec exists. A reboot empties the folder of specs; copies of
// them on disk keep the CPUs for the claims until the kubelet has prepared them anew.
package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// Book reserves and frees the CPUs of claims.
type Book struct {
	node *node.Node
	dir  string // folder of CDI specs; "" refuses claims
	kept string // folder of copies of the specs, on disk; "" keeps none
	// do runs an event in the event loop, the only place where the node may be used.
	do func(name string, event func() error) error
	// follow lets all containers follow the ledger after a claim was reserved or freed.
	follow func()

	one sync.Mutex // held by Prepare and End, since the spec and the ledger must not part

	// awaited are the claims of before a reboot, by UID, which keep their CPUs until a time. The event
	// loop alone uses it.
	awaited map[string]*claim.Claim
	until   time.Time
}

// New returns the book of a node whose CDI specs are in a folder. Its copies of them are in the folder
// "claims" of the state folder, unless that is "". do runs events in the event loop.
func New(n *node.Node, dir, state string, do func(string, func() error) error) *Book {
	b := &Book{node: n, dir: dir, do: do, awaited: map[string]*claim.Claim{}}
	if state != "" {
		b.kept = filepath.Join(state, "claims")
	}
	return b
}

// Restore restores the claims whose specs are in the folder, and reserves the CPUs of those that only
// their copies still know. The event loop's goroutine calls it before its first event. follow lets all
// containers follow the ledger after a claim was reserved or freed.
func (b *Book) Restore(follow func()) {
	b.follow = follow
	if b.dir == "" {
		return
	}
	b.restoreSpecs()
	b.await()
}

func (b *Book) restoreSpecs() {
	n := b.node
	entries, err := os.ReadDir(b.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Log.WithError(err).Error("The folder of CDI specs can't be read: claims that were prepared have no CPUs of their own")
	}
	for _, e := range entries {
		if !claim.IsFile(e.Name()) {
			continue
		}
		if err := b.restore(filepath.Join(b.dir, e.Name())); err != nil {
			n.Log.WithError(err).WithField("file", e.Name()).Error("A claim can't be restored from its CDI spec: end its pod, so that the kubelet prepares it anew")
		}
	}
}

func (b *Book) restore(file string) error {
	c, err := readSpec(file)
	if err != nil {
		return err
	}
	b.enter(c)
	b.node.Log.WithField("claim", c.Ref()).Info("Claim restored from its CDI spec")
	return nil
}

func readSpec(file string) (*claim.Claim, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return claim.ReadSpec(text)
}

// enter enters a claim into the ledger with the CPUs of its spec.
func (b *Book) enter(c *claim.Claim) {
	for i := range c.Devices {
		b.node.Ledger.Restore(reservation(c, i), c.Devices[i].Reserved, b.node.Now())
	}
}

func reservation(c *claim.Claim, device int) placement.Claim {
	d := &c.Devices[device]
	return placement.Claim{ID: c.ID(device), Ref: c.Ref(), Class: d.Class, CPUs: d.CPUs, Domain: d.Domain}
}

// Prepare reserves all that a claim asks for, or fails and reserves nothing. When it returns, the
// claim's CDI spec is on disk. A claim that is prepared already keeps its CPUs.
func (b *Book) Prepare(c *claim.Claim) error {
	b.one.Lock()
	defer b.one.Unlock()
	if b.dir == "" {
		return errors.New("this node reserves no CPUs for claims: start the plugin with --cdi-dir /var/run/cdi")
	}
	var added []string
	var awaited *claim.Claim
	err := b.do("prepare claim", func() (err error) {
		awaited = b.awaited[c.UID]
		added, err = b.reserve(c)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Ref(), err)
	}
	if err = writeSpec(b.dir, c, 0o755, 0o644); err != nil { // as the runtime makes the folder, and others their specs
		b.free(added, awaited)
		return fmt.Errorf("%s: its CDI spec can't be written: %w", c.Ref(), err)
	}
	b.keep(c)
	return nil
}

// reserve enters the claim into the ledger, and returns the IDs that were not known before. It enters
// nothing if a part of the claim is refused.
func (b *Book) reserve(c *claim.Claim) ([]string, error) {
	n := b.node
	b.forgetChanged(c)
	var added []string
	done := false
	defer func() {
		if !done {
			for _, id := range added {
				n.Ledger.Unreserve(id)
			}
		}
	}()
	for i := range c.Devices {
		r := reservation(c, i)
		_, known := n.Ledger.Claim(r.ID)
		if why := b.refuses(); why != "" && (!known || b.awaited[c.UID] != nil) {
			return nil, errors.New(why)
		}
		cpus, err := b.makeRoom(r)
		if err != nil {
			return nil, err
		}
		c.Devices[i].Reserved = cpus
		if h, ok := n.Ledger.Claim(r.ID); ok {
			c.Devices[i].CPUs = h.Request.CPUs // of a core the claim has not said it
		}
		if !known {
			added = append(added, r.ID)
			n.Log.WithFields(logrus.Fields{"claim": c.Ref(), "class": r.Class, "cpus": c.Devices[i].Reserved.String()}).Info("CPUs reserved for a claim")
		}
	}
	done = true
	delete(b.awaited, c.UID)
	b.follow()
	return added, nil
}

// refuses returns why this node reserves no CPUs for further claims now, or "".
func (b *Book) refuses() string {
	switch {
	case !b.node.Synced:
		return "the container runtime has not listed its containers yet: the kubelet tries again"
	case !b.node.Authority().Writes:
		return "Sluice only previews on this node (mode: preview), so it reserves no CPUs"
	case !b.node.Authority().Cpusets:
		return "the kubelet's static CPU manager sets the cpusets of this node, so Sluice reserves no CPUs: set cpuManagerPolicy: none"
	}
	return ""
}

func writeSpec(dir string, c *claim.Claim, folder, file fs.FileMode) error {
	text, err := c.Spec()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, folder); err != nil {
		return err
	}
	name := filepath.Join(dir, claim.FileOf(c.UID))
	temporary := name + ".new" // the runtime reads files with the suffix .json alone
	if err := os.WriteFile(temporary, text, file); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}

// End frees what a claim has reserved. It is no error if the claim is not known.
func (b *Book) End(uid string) error {
	b.one.Lock()
	defer b.one.Unlock()
	if b.dir == "" {
		return nil
	}
	if err := remove(b.dir, uid); err != nil {
		return fmt.Errorf("the CDI spec of claim %s: %w", uid, err)
	}
	b.removeKept(uid)
	return b.do("end claim", func() error {
		delete(b.awaited, uid)
		for _, h := range reserved(b.node.Ledger, uid) {
			b.node.Ledger.Unreserve(h.ID)
			b.node.Log.WithFields(logrus.Fields{"claim": h.Ref, "cpus": h.Request.CPUSet.String()}).Info("CPUs of a claim freed at its end")
		}
		b.follow()
		return nil
	})
}

func remove(dir, uid string) error {
	err := os.Remove(filepath.Join(dir, claim.FileOf(uid)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// free takes back a reservation. If it added nothing to an awaited claim, that is awaited again.
func (b *Book) free(added []string, awaited *claim.Claim) {
	b.do("undo claim", func() error { //nolint:errcheck // fails only if the agent has ended
		if awaited != nil && len(added) == 0 {
			b.awaited[awaited.UID] = awaited
		}
		for _, id := range added {
			b.node.Ledger.Unreserve(id)
		}
		b.follow()
		return nil
	})
}
