package irq

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

var list = cpuset.MustParse

// kernel answers writes as write_irq_affinity of kernel/irq/proc.c does.
type kernel struct {
	online  cpuset.Set
	files   map[File]cpuset.Set
	managed map[File]bool
	narrow  map[File]bool // files whose interrupt controller uses only the first CPU
}

func (k *kernel) write(w Write) (cpuset.Set, error) {
	switch _, ok := k.files[w.File]; {
	case !ok:
		return cpuset.Set{}, ErrGone
	case k.managed[w.File]:
		return cpuset.Set{}, syscall.EIO
	case !w.CPUs.Overlaps(k.online):
		return cpuset.Set{}, syscall.EINVAL
	case k.narrow[w.File]:
		k.files[w.File] = cpuset.Of(w.CPUs.First())
	default:
		k.files[w.File] = w.CPUs
	}
	return k.files[w.File], nil
}

// pass carries out at most the given number of writes, and AfterWrites follows if all of them were
// made.
func (k *kernel) pass(kept Originals, d Desire, most int) Originals {
	kept, writes := Plan(maps.Clone(k.files), true, kept, d)
	var results []Result
	for i, w := range writes {
		if i == most {
			return kept
		}
		cpus, err := k.write(w)
		results = append(results, Result{w.File, cpus, err})
	}
	return AfterWrites(kept, results, d)
}

const unbroken = 1 << 20

func TestPlan(t *testing.T) {
	t.Parallel()
	const online = "0-7"
	tests := map[string]struct {
		found map[File]string
		kept  map[File][3]string // original, was and now
		away  string
		want  map[File]string // expected writes
	}{
		"nothing to keep free":           {map[File]string{"1": "0-7", Default: "0-7"}, nil, "", nil},
		"away from some":                 {map[File]string{"1": "0-7", Default: "0-7"}, nil, "2-3", map[File]string{"1": "0-1,4-7", Default: "0-1,4-7"}},
		"not there anyway":               {map[File]string{"1": "4-5"}, nil, "2-3", nil},
		"all of it is to be free":        {map[File]string{"1": "2"}, nil, "2-3", map[File]string{"1": "0-1,4-7"}},
		"the rest is offline":            {map[File]string{"1": "2,8-15"}, nil, "2-3", map[File]string{"1": "0-1,4-7"}},
		"offline ones stay":              {map[File]string{"1": "0-15"}, nil, "2-3", map[File]string{"1": "0-1,4-15"}},
		"nowhere else to go":             {map[File]string{"1": "0-7"}, nil, "0-7", nil},
		"from the original, not the now": {map[File]string{"1": "0-1,4-7"}, map[File][3]string{"1": {"2", "2", "0-1,4-7"}}, "4-5", map[File]string{"1": "2"}},
		"back":                           {map[File]string{"1": "0-1"}, map[File][3]string{"1": {"0-3", "0-3", "0-1"}}, "", map[File]string{"1": "0-3"}},
		"never written after all":        {map[File]string{"1": "0-1"}, map[File][3]string{"1": {"0-3", "0-1", "3"}}, "", map[File]string{"1": "0-3"}},
		"somebody else's":                {map[File]string{"1": "6"}, map[File][3]string{"1": {"0-3", "0-3", "0-1"}}, "", nil},
		"somebody else's, on the CPUs":   {map[File]string{"1": "2,6"}, map[File][3]string{"1": {"0-3", "0-3", "0-1"}}, "2", map[File]string{"1": "6"}},
		"born with the steered default":  {map[File]string{"9": "0-1", Default: "0-1"}, map[File][3]string{Default: {"0-3", "0-3", "0-1"}}, "", map[File]string{"9": "0-3", Default: "0-3"}},
		"born after the default changed": {map[File]string{"9": "0-1", Default: "5"}, map[File][3]string{Default: {"0-3", "0-3", "0-1"}}, "", nil},
		"workqueues are not born":        {map[File]string{Workqueues: "0-1", Default: "0-1"}, map[File][3]string{Default: {"0-3", "0-3", "0-1"}}, "", map[File]string{Default: "0-3"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, kept, got := map[File]cpuset.Set{}, Originals{}, map[File]string{}
			for f, cpus := range test.found {
				found[f] = list(cpus)
			}
			for f, k := range test.kept {
				kept[f] = Affinity{list(k[0]), list(k[1]), list(k[2])}
			}
			next, writes := Plan(found, true, kept, Desire{IRQs: list(test.away), Online: list(online)})
			for _, w := range writes {
				got[w.File] = w.CPUs.String()
				if k := next[w.File]; k.Now != w.CPUs || k.Was != found[w.File] {
					t.Errorf("%s is written from %s to %s, and kept as %+v", w.File, found[w.File], w.CPUs, k)
				}
			}
			if len(got)+len(test.want) > 0 && !reflect.DeepEqual(got, test.want) {
				t.Errorf("writes %v, want %v", got, test.want)
			}
		})
	}
}

func TestEachKindHasItsOwnCPUs(t *testing.T) {
	t.Parallel()
	found := map[File]cpuset.Set{"1": list("0-3"), Workqueues: list("0-3"), Default: list("0-3"), "30": list("0-3"), "4": list("0-3")}
	for want, d := range map[string]Desire{
		"default=0-2 1=0-2 4=0-2 30=0-2 ": {IRQs: list("3")},
		"workqueues=1-3 ":                 {Workqueues: list("0")},
	} {
		d.Online = list("0-3")
		_, writes := Plan(found, true, nil, d)
		got := ""
		for _, w := range writes {
			got += string(w.File) + "=" + w.CPUs.String() + " "
		}
		if got != want {
			t.Errorf("writes %s, want %s", got, want)
		}
	}
}

func TestWhatCouldNotBeReadStaysKept(t *testing.T) {
	t.Parallel()
	kept := Originals{"1": {list("0-3"), list("0-3"), list("0-1")}}
	if next, _ := Plan(nil, false, kept, Desire{}); !reflect.DeepEqual(next, kept) {
		t.Errorf("kept %v", next)
	}
	if next, _ := Plan(nil, true, kept, Desire{}); len(next) > 0 {
		t.Errorf("a vanished interrupt is kept: %v", next)
	}
}

func TestNarrowedAffinityIsNotSomebodyElses(t *testing.T) {
	t.Parallel()
	k := &kernel{online: list("0-7"), files: map[File]cpuset.Set{"1": list("4-7")}, narrow: map[File]bool{"1": true}}
	kept := k.pass(nil, Desire{IRQs: list("4"), Online: k.online}, unbroken)
	if k.files["1"] != list("5") {
		t.Fatalf("steered to %s", k.files["1"])
	}
	k.narrow = nil
	if kept = k.pass(kept, Desire{Online: k.online}, unbroken); k.files["1"] != list("4-7") || len(kept) > 0 {
		t.Errorf("given back %s, still kept %v", k.files["1"], kept)
	}
}

// The next plan tries a restore again that the kernel has refused.
func TestRefusedRestoreIsKept(t *testing.T) {
	t.Parallel()
	k := &kernel{online: list("0-3"), files: map[File]cpuset.Set{"1": list("0-3")}}
	kept := k.pass(nil, Desire{IRQs: list("3"), Online: k.online}, unbroken)
	k.managed = map[File]bool{"1": true}
	kept = k.pass(kept, Desire{Online: k.online}, unbroken)
	k.managed = nil
	if kept = k.pass(kept, Desire{Online: k.online}, unbroken); k.files["1"] != list("0-3") || len(kept) > 0 {
		t.Errorf("given back %s, still kept %v", k.files["1"], kept)
	}
}

func TestGoneIsNotKept(t *testing.T) {
	t.Parallel()
	kept := Originals{"1": {list("0-3"), list("0-3"), list("0-1")}}
	if next := AfterWrites(kept, []Result{{File: "1", Err: fmt.Errorf("1: %w", ErrGone)}}, Desire{IRQs: list("2")}); len(next) > 0 || len(kept) == 0 {
		t.Errorf("kept %v of %v", next, kept)
	}
}

// Whatever happens before, a desire for nothing gives every file the affinity that it would have
// without Sluice.
func TestEveryOriginalComesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const cpus = 8 // CPUs 6 and 7 are offline
		subset := func(least int, label string) cpuset.Set {
			return cpuset.Of(rapid.SliceOfNDistinct(rapid.IntRange(0, cpus-1), least, cpus, rapid.ID).Draw(t, label)...)
		}
		k := &kernel{online: list("0-5"), files: map[File]cpuset.Set{}, managed: map[File]bool{}}
		original := map[File]cpuset.Set{}
		set := func(f File, to cpuset.Set) { k.files[f], original[f] = to, to }
		affinity := func() cpuset.Set {
			return rapid.Custom(func(*rapid.T) cpuset.Set { return subset(1, "affinity") }).Filter(func(s cpuset.Set) bool { return s.Overlaps(k.online) }).Draw(t, "affinity")
		}
		set(Default, affinity())
		set(Workqueues, affinity())
		for n := range 6 {
			f := File(strconv.Itoa(n))
			set(f, affinity())
			k.managed[f] = n%3 == 0
		}
		var kept Originals
		d := Desire{Online: k.online}
		t.Repeat(map[string]func(*rapid.T){
			"desire": func(*rapid.T) {
				d.IRQs = cpuset.Intersect(subset(0, "irqs"), k.online)
				d.Workqueues = cpuset.Intersect(subset(0, "workqueues"), k.online)
				kept = k.pass(kept, d, unbroken)
				for f, now := range k.files {
					if want := slowTarget(original[f], d.away(f), k.online); now != want && !k.managed[f] {
						t.Fatalf("%s has %s instead of %s: original %s, %+v", f, now, want, original[f], d)
					}
				}
				if again, writes := Plan(k.files, true, kept, d); len(again) != len(kept) || len(writes) > 0 && !k.managed[writes[0].File] {
					t.Fatalf("a second plan writes %v", writes)
				}
			},
			"crash": func(*rapid.T) {
				d.IRQs = cpuset.Intersect(subset(0, "irqs"), k.online)
				kept = k.pass(kept, d, rapid.IntRange(0, 5).Draw(t, "writes"))
			},
			"somebody else": func(*rapid.T) {
				kept = k.pass(kept, d, unbroken)
				f := rapid.SampledFrom([]File{"1", "2", "4", Default, Workqueues}).Draw(t, "file")
				to := affinity()
				if _, ok := k.files[f]; !ok || to == kept[f].Now || to == kept[f].Was || to == kept[Default].Now {
					return // it can't be distinguished from Sluice's own value
				}
				set(f, to)
			},
			"vanish": func(*rapid.T) {
				f := rapid.SampledFrom([]File{"1", "2", "3"}).Draw(t, "file")
				delete(k.files, f)
				delete(original, f)
				kept = k.pass(kept, d, unbroken)
			},
			"born": func(*rapid.T) {
				if f := File(strconv.Itoa(rapid.IntRange(7, 9).Draw(t, "number"))); k.files[f].IsEmpty() {
					kept = k.pass(kept, d, unbroken)
					k.files[f], original[f] = k.files[Default], original[Default]
				}
			},
		})
		kept = k.pass(kept, Desire{Online: k.online}, unbroken)
		if !maps.Equal(k.files, original) || len(kept) > 0 {
			t.Fatalf("files have\n%v, originals are\n%v, still kept\n%v", k.files, original, kept)
		}
	})
}

func slowTarget(original, away, online cpuset.Set) cpuset.Set {
	var left, others cpuset.Set
	usable := false
	for cpu := range 64 {
		if original.Contains(cpu) && !away.Contains(cpu) {
			left.Add(cpu)
			usable = usable || online.Contains(cpu)
		}
		if online.Contains(cpu) && !away.Contains(cpu) {
			others.Add(cpu)
		}
	}
	switch {
	case usable:
		return left
	case others.Size() > 0:
		return others
	}
	return original
}
