// Package irq keeps interrupts and the kernel's unbound workqueues off CPUs, and restores their
// original affinities. It separates the decision which affinity each should have from reading
// and writing. No other package touches /proc/irq and the workqueues' mask in /sys.
package irq

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// File identifies an affinity; an interrupt's File is its number.
type File string

// These affinities belong to no single interrupt.
const (
	Default    File = "default"    // the affinity of new interrupts
	Workqueues File = "workqueues" // the affinity of unbound workqueues
)

// Desire says which online CPUs to keep free. If a set is empty, the original affinities are
// restored.
type Desire struct {
	IRQs       cpuset.Set // CPUs without interrupts, unless an interrupt can't run elsewhere
	Workqueues cpuset.Set // CPUs without unbound workqueues
	Online     cpuset.Set
}

// IsEmpty reports whether all original affinities are to be restored.
func (d *Desire) IsEmpty() bool { return d.IRQs.IsEmpty() && d.Workqueues.IsEmpty() }

func (d *Desire) away(f File) cpuset.Set {
	if f == Workqueues {
		return d.Workqueues
	}
	return d.IRQs
}

// target returns the affinity of a file that avoids the CPUs to be kept free: the original's
// other CPUs; or all other CPUs if none of those is online, which the kernel refuses; or the
// original if there are no other CPUs.
func (d *Desire) target(f File, original cpuset.Set) cpuset.Set {
	away := d.away(f)
	for _, from := range []cpuset.Set{original, d.Online} {
		if left := cpuset.Difference(from, away); left.Overlaps(d.Online) {
			return left
		}
	}
	return original
}

// Affinity is the record for restoring a file's original affinity. It is written to disk before
// the file, so after a crash the kernel may show either Was or Now.
type Affinity struct {
	Original cpuset.Set `json:"original"`
	Was      cpuset.Set `json:"was"` // before Sluice's last write
	Now      cpuset.Set `json:"now"` // after Sluice's last write
}

// Originals holds the records of all files that are steered or monitored. Its maps are never
// modified after creation.
type Originals map[File]Affinity

// Write is a file's new affinity.
type Write struct {
	File File
	CPUs cpuset.Set
}

// Plan returns the records to save durably and the writes to make then. If an affinity differs
// from Sluice's last write, another program has changed it, and its value becomes the original.
// The exception is an unknown interrupt with the steered default: it got that at its creation,
// and its original is the default's original. With all, Plan forgets files that are not in
// found.
func Plan(found map[File]cpuset.Set, all bool, originals Originals, d Desire) (Originals, []Write) {
	next := Originals{}
	for f, k := range originals {
		if _, ok := found[f]; !ok && !all {
			next[f] = k
		}
	}
	var writes []Write
	born := originals[Default]
	if found[Default] != born.Now {
		born = Affinity{}
	}
	for _, f := range slices.SortedFunc(maps.Keys(found), compare) {
		now := found[f]
		original := now
		if k, ok := originals[f]; ok && (now == k.Was || now == k.Now) {
			original = k.Original
		} else if f != Workqueues && now == born.Now {
			original = born.Original
		}
		if d.away(f).IsEmpty() && now == original {
			continue
		}
		want := d.target(f, original)
		next[f] = Affinity{Original: original, Was: now, Now: want}
		if want != now {
			writes = append(writes, Write{f, want})
		}
	}
	return next, writes
}

// compare sorts the default first, so that interrupts created from then on have the right
// affinity.
func compare(a, b File) int { return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a, b)) }

func (f File) order() int {
	n, err := strconv.Atoi(string(f))
	if err != nil {
		return -1
	}
	return n
}

// ErrGone says that a file no longer exists.
var ErrGone = errors.New("gone")

// Result is the outcome of a write.
type Result struct {
	File File
	CPUs cpuset.Set // the affinity read back: some interrupt controllers narrow it
	Err  error      // ErrGone, or the kernel's refusal
}

// AfterWrites returns the records that are still needed after the writes of a plan.
func AfterWrites(originals Originals, results []Result, d Desire) Originals {
	next := maps.Clone(originals)
	for _, r := range results {
		switch {
		case errors.Is(r.Err, ErrGone), r.Err == nil && d.away(r.File).IsEmpty():
			delete(next, r.File)
		case r.Err == nil:
			k := next[r.File]
			k.Now = r.CPUs
			next[r.File] = k
		}
	}
	return next
}
