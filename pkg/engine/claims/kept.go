package claims

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// patience is how long after the plugin's start the CPUs of a claim wait for the kubelet to prepare it
// anew. A kubelet that runs prepares the claims of its pods at once, and ends those without a pod a minute
// after its start.
const patience = 10 * time.Minute

// keep copies a claim's spec to the disk. Without the copy a reboot may give the CPUs to a pin that starts
// before the kubelet prepares the claim, so that the claim is prepared all the same. The copy is not
// synced to the disk, since the kubelet waits.
func (b *Book) keep(c *claim.Claim) {
	if b.kept == "" {
		return
	}
	if err := writeSpec(b.kept, c, 0o700, 0o600); err != nil {
		b.node.Log.WithError(err).WithField("claim", c.Ref()).Warn("A claim is not kept on disk: after a reboot of the node a pin can have its CPUs")
	}
}

// removeKept removes the copy of a claim that has ended. Its CPUs are free even if that fails.
func (b *Book) removeKept(uid string) {
	if b.kept == "" {
		return
	}
	if err := remove(b.kept, uid); err != nil {
		b.node.Log.WithError(err).Warn("A claim that has ended stays on disk: after a reboot of the node its CPUs wait for it for some minutes")
	}
}

// await reserves the CPUs of the claims that have a copy and no spec: the node has been booted since. A
// copy that can't be read, or whose CPUs this machine does not have any more, is removed.
func (b *Book) await() {
	if b.kept == "" {
		return
	}
	log := b.node.Log
	entries, err := os.ReadDir(b.kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.WithError(err).Warn("The claims of before a reboot can't be read: pins can have their CPUs")
	}
	b.until = b.node.Now().Add(patience)
	for _, e := range entries {
		if !claim.IsFile(e.Name()) {
			continue
		}
		file := filepath.Join(b.kept, e.Name())
		c, err := readSpec(file)
		switch {
		case err == nil && len(reserved(b.node.Ledger, c.UID)) > 0: // its spec is there
		case err == nil && b.enterWhole(c):
			b.awaited[c.UID] = c
			log.WithField("claim", c.Ref()).Info("CPUs wait for a claim of before the reboot, which the kubelet prepares anew")
		default:
			if err := errors.Join(err, os.Remove(file)); err != nil {
				log.WithError(err).WithField("file", file).Warn("A claim of before the reboot can't be read: a pin can have its CPUs")
			}
		}
	}
}

// enterWhole enters a claim into the ledger if it can have all of its CPUs.
func (b *Book) enterWhole(c *claim.Claim) bool {
	b.enter(c)
	whole := true
	for _, h := range reserved(b.node.Ledger, c.UID) {
		whole = whole && h.Short == ""
	}
	if !whole {
		unreserve(b.node.Ledger, c.UID)
	}
	return whole
}

// reserved lists what a claim has in a ledger.
func reserved(l *placement.Ledger, uid string) []*placement.Holder {
	return slices.DeleteFunc(l.Claims(), func(h *placement.Holder) bool { return !claim.IsOf(h.ID, uid) })
}

func unreserve(l *placement.Ledger, uid string) {
	for _, h := range reserved(l, uid) {
		l.Unreserve(h.ID)
	}
}

// Pass frees the CPUs of awaited claims once their time is over. The event loop calls it.
func (b *Book) Pass() {
	if len(b.awaited) > 0 && b.node.Now().After(b.until) {
		b.forget(slices.Collect(maps.Keys(b.awaited)))
		b.follow()
	}
}

// forget frees the CPUs of awaited claims.
func (b *Book) forget(uids []string) {
	for _, uid := range uids {
		unreserve(b.node.Ledger, uid)
		b.node.Log.WithField("claim", b.awaited[uid].Ref()).Info("CPUs of a claim of before the reboot freed: the kubelet has not prepared it")
		delete(b.awaited, uid)
	}
	b.node.Spawn(func() {
		b.one.Lock()
		defer b.one.Unlock()
		for _, uid := range uids {
			if _, err := os.Stat(filepath.Join(b.dir, claim.FileOf(uid))); err != nil { // it was not prepared meanwhile
				b.removeKept(uid)
			}
		}
	})
}

// forgetChanged frees the CPUs of an awaited claim that was allocated anew, and asks for something else.
func (b *Book) forgetChanged(c *claim.Claim) {
	if b.awaited[c.UID] == nil {
		return
	}
	same := len(reserved(b.node.Ledger, c.UID)) == len(c.Devices)
	for i := range c.Devices {
		r := reservation(c, i)
		if _, known := b.node.Ledger.Claim(r.ID); same && known {
			_, err := b.node.Ledger.Reserve(r, b.node.Now()) // changes nothing of what is known
			same = err == nil
		}
	}
	if !same {
		b.forget([]string{c.UID})
	}
}

// makeRoom reserves the CPUs of a claim, if need be by those of awaited claims, first in its own domain:
// the scheduler allocates CPUs to a claim only once the claim that had them has ended.
func (b *Book) makeRoom(r placement.Claim) (cpuset.Set, error) {
	ledger, now := b.node.Ledger, b.node.Now()
	cpus, err := ledger.Reserve(r, now)
	if err == nil {
		return cpus, nil
	}
	trial := ledger.Clone()
	var ended []string
	for _, uid := range b.awaitedFirst(r) {
		ended = append(ended, uid)
		unreserve(trial, uid)
		if _, refused := trial.Reserve(r, now); refused == nil {
			b.forget(ended)
			return ledger.Reserve(r, now)
		}
	}
	return cpus, err
}

// awaitedFirst lists the other awaited claims, first those with CPUs of the domain.
func (b *Book) awaitedFirst(r placement.Claim) []string {
	var near, far []string
	for _, uid := range slices.Sorted(maps.Keys(b.awaited)) {
		switch {
		case claim.IsOf(r.ID, uid):
		case slices.ContainsFunc(b.awaited[uid].Devices, func(d claim.Device) bool { return d.Domain == r.Domain }):
			near = append(near, uid)
		default:
			far = append(far, uid)
		}
	}
	return append(near, far...)
}
