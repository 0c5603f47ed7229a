// Package irq keeps interrupts and the kernel's unbound workqueues off CPUs, and
// gives them back: which affinity each is to have is decided apart from the
// reading and writing. No other package touches /proc/irq and the workqueues'
// mask in /sys.
package irq

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// File names one affinity: an interrupt's by its number.
type File string

// The affinities that are no interrupt's own.
const (
	Default    File = "default"    // what new interrupts get
	Workqueues File = "workqueues" // where unbound work runs
)

// Desire is which online CPUs are to be left alone. Where a set is empty,
// everything gets its original back.
type Desire struct {
	IRQs       cpuset.Set // no interrupt's, where it has another choice
	Workqueues cpuset.Set // no unbound work
	Online     cpuset.Set
}

// IsEmpty reports whether everything is to have its original.
func (d *Desire) IsEmpty() bool { return d.IRQs.IsEmpty() && d.Workqueues.IsEmpty() }

func (d *Desire) away(f File) cpuset.Set {
	if f == Workqueues {
		return d.Workqueues
	}
	return d.IRQs
}

// target is an affinity without the CPUs to be left alone: the original's others,
// or all others where none of those is online (the kernel refuses that), or the
// original where there are no others.
func (d *Desire) target(f File, original cpuset.Set) cpuset.Set {
	away := d.away(f)
	for _, from := range []cpuset.Set{original, d.Online} {
		if left := cpuset.Difference(from, away); left.Overlaps(d.Online) {
			return left
		}
	}
	return original
}

// Affinity is what must be known of one file to give its original back. It is on
// disk before the file is written, so the kernel may show either of the others.
type Affinity struct {
	Original cpuset.Set `json:"original"`
	Was      cpuset.Set `json:"was"` // before the last write
	Now      cpuset.Set `json:"now"` // after it
}

// Kept are the files that are steered or watched. It is never changed in place.
type Kept map[File]Affinity

// Write is one file's new affinity.
type Write struct {
	File File
	CPUs cpuset.Set
}

// Plan returns what to keep, durably, and what to write then. An affinity that is
// not as it was left is somebody else's newer one, and its original from now on;
// but an unknown interrupt with the steered default was born with that, and would
// have had the default's original. What is not found is forgotten if found is all
// there is.
func Plan(found map[File]cpuset.Set, all bool, kept Kept, d Desire) (Kept, []Write) {
	next := Kept{}
	for f, k := range kept {
		if _, ok := found[f]; !ok && !all {
			next[f] = k
		}
	}
	var writes []Write
	born := kept[Default]
	if found[Default] != born.Now {
		born = Affinity{}
	}
	for _, f := range slices.SortedFunc(maps.Keys(found), compare) {
		now := found[f]
		original := now
		if k, ok := kept[f]; ok && (now == k.Was || now == k.Now) {
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

// compare sorts the default first, so that new interrupts are right from then on.
func compare(a, b File) int { return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a, b)) }

func (f File) order() int {
	n, err := strconv.Atoi(string(f))
	if err != nil {
		return -1
	}
	return n
}

// ErrGone is the error of a file that is there no longer.
var ErrGone = errors.New("gone")

// Result is what became of a write.
type Result struct {
	File File
	CPUs cpuset.Set // read back: some interrupt controllers narrow what they are given
	Err  error      // ErrGone, or the kernel's refusal
}

// Settle returns what is still to be kept after the writes of a plan.
func Settle(kept Kept, results []Result, d Desire) Kept {
	next := maps.Clone(kept)
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
