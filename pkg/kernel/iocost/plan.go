package iocost

import (
	"cmp"
	"errors"
	"maps"
	"slices"
)

// Disk is a whole disk with a request queue of its own.
type Disk struct {
	Name       string // "nvme0n1"
	Number     string // "259:0"
	Rotational bool   // by what the kernel believes: many virtual disks say so
	Scheduler  string // of its queue: "none", "mq-deadline", "bfq"
}

// ByWeight reports whether the disk's scheduler divides its time by weight without io.cost.
func (d *Disk) ByWeight() bool { return d.Scheduler == "bfq" || d.Scheduler == "cfq" }

// Want returns the parameters that a disk should have. It returns false for a disk that is left as
// it was. A nil Want leaves all as they were.
type Want func(Disk) (QoS, bool)

// Record is what restores a disk's parameters. It is written to disk before the kernel, so after a
// crash the kernel may show either Was or Now.
type Record struct {
	Original QoS `json:"original"`
	Was      QoS `json:"was"` // before Sluice's last write
	Now      QoS `json:"now"` // after Sluice's last write
}

// Originals holds the records by the disks' numbers. It is never modified after creation.
type Originals map[string]Record

// Write is a disk's new parameters.
type Write struct {
	Number string
	To     QoS
}

// Planned is what Plan returns.
type Planned struct {
	Originals Originals // the records to save durably, before the writes
	Writes    []Write
	WithCost  []string // numbers of the disks on which io.cost is enabled after the writes, by any program
	Enabled   []string // names of the disks on which Sluice has io.cost enabled after the writes
	Others    []string // names of disks that Want wants, and on which another program has enabled io.cost: they stay as they are
}

// Plan compares the parameters found with those wanted. If parameters differ from Sluice's last
// write, another program has changed them: where it has enabled io.cost, the disk is that program's,
// and otherwise its parameters become the original. Plan forgets disks that are gone, which have no
// parameters: a new disk may have the number of an earlier one. A disk that only the list lacks, as
// while an NVMe controller is reset, keeps its record.
func Plan(found map[string]QoS, disks []Disk, originals Originals, want Want) Planned {
	p := Planned{Originals: Originals{}}
	for _, d := range slices.SortedFunc(slices.Values(disks), func(a, b Disk) int { return cmp.Compare(a.Name, b.Name) }) {
		var to QoS
		wanted := false
		if want != nil {
			to, wanted = want(d)
		}
		p.add(d, found[d.Number], to, wanted, originals)
	}
	for number, record := range originals {
		listed := slices.ContainsFunc(disks, func(d Disk) bool { return d.Number == number })
		if now, exists := found[number]; exists && !listed && (now == record.Was || now == record.Now) {
			p.Originals[number] = record
		}
	}
	return p
}

func (p *Planned) add(d Disk, now, to QoS, wanted bool, originals Originals) {
	original := now
	record, has := originals[d.Number]
	if has && (now == record.Was || now == record.Now) {
		original = record.Original
	}
	switch {
	case original.Enabled:
		p.WithCost = append(p.WithCost, d.Number)
		if wanted {
			p.Others = append(p.Others, d.Name)
		}
		return
	case !wanted && now == original:
		return
	case !wanted:
		to = original
	default:
		p.WithCost = append(p.WithCost, d.Number)
		p.Enabled = append(p.Enabled, d.Name)
	}
	p.Originals[d.Number] = Record{Original: original, Was: now, Now: to}
	if now != to {
		p.Writes = append(p.Writes, Write{d.Number, to})
	}
}

// ErrGone says that a disk no longer exists.
var ErrGone = errors.New("the disk is gone")

// AfterWrites returns the records that are still needed after the writes of a plan, by the writes'
// errors: not those of disks that are gone, and of disks that have their originals again.
func AfterWrites(originals Originals, writes []Write, errs []error) Originals {
	next := maps.Clone(originals)
	for i, w := range writes {
		if errors.Is(errs[i], ErrGone) || errs[i] == nil && w.To == originals[w.Number].Original {
			delete(next, w.Number)
		}
	}
	return next
}
