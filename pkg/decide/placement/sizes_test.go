package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func exclusive() Config {
	return Config{Mode: Exclusive, Follow: true, Pools: []Pool{{Name: "critical", Size: Size{Count: 2}}, {Name: "online"}, {Name: "batch", Size: Size{Count: 2}}}}
}

func sizesOf(l *Ledger) []int {
	var sizes []int
	for _, p := range l.Pools() {
		sizes = append(sizes, p.CPUs.Size())
	}
	return sizes
}

// TestSetSizes sets sizes as a loop does, beside pins. "all" stands for pools that all have all
// shared CPUs.
func TestSetSizes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		machine string
		config  Config
		sizes   []int
		pin     int
		want    string
	}{
		"none":                         {flat, exclusive(), nil, 0, "[2 4 2]"},
		"zeros":                        {flat, exclusive(), []int{0, 0, 0}, 0, "[2 4 2]"},
		"all":                          {flat, exclusive(), []int{3, 1, 4}, 0, "[3 1 4]"},
		"some":                         {flat, exclusive(), []int{3}, 0, "[3 3 2]"},
		"batch has what is left":       {flat, exclusive(), []int{3, 2, 1}, 0, "[3 2 3]"},
		"a pin takes of batch":         {flat, exclusive(), []int{3, 1, 4}, 2, "[3 1 2]"},
		"then of the pool above":       {flat, exclusive(), []int{2, 4, 2}, 3, "[2 2 1]"},
		"then of the highest":          {flat, exclusive(), []int{6, 1, 1}, 3, "[3 1 1]"},
		"as without a loop":            {flat, exclusive(), []int{6, 1, 1}, 6, "[1 2 1]"},
		"more than there is":           {flat, exclusive(), []int{9, 9, 9}, 0, "[6 1 1]"},
		"batch alone in overlap":       {flat, Default(), []int{3, 1, 4}, 0, "[8 8 4]"},
		"batch with a set in overlap":  {flat, Config{Pools: []Pool{{Name: "online"}, {Name: "batch", Size: Size{Set: cpuset.Of(0, 1)}}}}, []int{0, 4}, 0, "[8 4]"},
		"all of it in overlap":         {flat, Default(), []int{0, 0, 9}, 2, "[6 6 6]"},
		"a core of each pool at least": {"4 cores 2 threads", exclusive(), []int{8, 2, 2}, 0, "[4 2 2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := New(c.config, machine(t, c.machine))
			l.SetSizes(c.sizes)
			before := fmt.Sprint(sizesOf(l))
			if c.pin > 0 {
				place(t, l, "pin", pinned(workload.LSR, c.pin))
			}
			if got := fmt.Sprint(sizesOf(l)); got != c.want {
				t.Errorf("sizes are %s, want %s", got, c.want)
			}
			if l.Release("pin"); fmt.Sprint(sizesOf(l)) != before {
				t.Errorf("sizes are %v after the pin, were %s before", sizesOf(l), before)
			}
			if l.SetSizes(nil); fmt.Sprint(sizesOf(l)) != fmt.Sprint(sizesOf(New(c.config, machine(t, c.machine)))) {
				t.Errorf("sizes are %v without the loop", sizesOf(l))
			}
		})
	}
}

// TestSizesMoveLittle sets random sizes beside random pins. A pool whose size stays or grows loses
// CPUs only to pins, and one that shrinks gains none.
func TestSizesMoveLittle(t *testing.T) {
	t.Parallel()
	names := []string{small, flat, "1 packages 2 nodes 4 cores 2 threads l3 2 cores", "2 packages 8 cores 2 threads"}
	machines := map[string]*topology.Machine{}
	for _, text := range names {
		machines[text] = machine(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		m := machines[rapid.SampledFrom(names).Draw(t, "machine")]
		l := New(exclusive(), m)
		l.SetSizes([]int{1, 1, 1})
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			before := l.Pools()
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				l.Place(who(fmt.Sprint("p", i)), pinned(workload.LSR, rapid.IntRange(1, 4).Draw(t, "pin")), cpuset.Set{}, start)
			case 1:
				l.Release(fmt.Sprint("p", rapid.IntRange(0, i).Draw(t, "released")))
			default:
				core := m.ThreadsPerCore()
				l.SetSizes([]int{core * rapid.IntRange(1, 6).Draw(t, "a"), core * rapid.IntRange(1, 6).Draw(t, "b"), 1})
			}
			if l.Shared().Size() < m.ThreadsPerCore()*len(before) {
				return
			}
			var all cpuset.Set
			for j, p := range l.Pools() {
				if p.CPUs.Overlaps(all) {
					t.Fatalf("pool %s shares %s", p.Name, cpuset.Intersect(p.CPUs, all))
				}
				all = cpuset.Union(all, p.CPUs)
				had := cpuset.Intersect(before[j].CPUs, l.Shared())
				gained, lost := cpuset.Difference(p.CPUs, had).Size(), cpuset.Difference(had, p.CPUs).Size()
				if gained > 0 && lost > 0 {
					t.Fatalf("pool %s moved from %s to %s", p.Name, had, p.CPUs)
				}
			}
			if all != l.Shared() {
				t.Fatalf("pools have %s of %s", all, l.Shared())
			}
		}
	})
}

// TestPinsSpareThePoolsAboveBatch checks that pins take CPUs of the batch pool first while the
// loop's sizes hold.
func TestPinsSpareThePoolsAboveBatch(t *testing.T) {
	t.Parallel()
	l := New(exclusive(), machine(t, flat))
	l.SetSizes([]int{2, 2, 4})
	before := l.Pools()
	place(t, l, "pin", pinned(workload.LSR, 2))
	for i, after := range l.Pools()[:2] {
		if after != before[i] {
			t.Errorf("pool %s moved from %s to %s", after.Name, before[i].CPUs, after.CPUs)
		}
	}
}

// TestFoundSizesStay restarts on a node whose pools a loop has sized. Without a loop, the
// configuration's sizes return.
func TestFoundSizesStay(t *testing.T) {
	t.Parallel()
	for _, follow := range []bool{true, false} {
		config := exclusive()
		config.Follow = follow
		m := machine(t, flat)
		ran := New(config, m)
		ran.SetSizes([]int{1, 3, 4})
		l := New(config, m)
		l.DivideOnce(func() {
			for i, p := range ran.Pools() {
				class := workload.LS
				if i == 2 {
					class = workload.BE
				}
				l.Adopt(who(p.Name), workload.Request{Class: class, Pool: p.Name}, p.CPUs, cpuset.Set{}, start)
			}
		})
		if same := fmt.Sprint(l.Pools()) == fmt.Sprint(ran.Pools()); same != follow {
			t.Errorf("following %v: found %v, have %v", follow, ran.Pools(), l.Pools())
		}
		if got := fmt.Sprint(sizesOf(l)); !follow && got != "[2 4 2]" {
			t.Errorf("without a loop the sizes are %s", got)
		}
	}
}

// TestFoundBatchStays restarts on a node with a batch pool that overlaps the others.
func TestFoundBatchStays(t *testing.T) {
	t.Parallel()
	config := Default()
	config.Follow = true
	l := New(config, machine(t, flat))
	l.Adopt(who("ls"), workload.Request{Class: workload.LS}, cpuset.Range(0, 3), cpuset.Set{}, start)
	l.Adopt(who("be"), workload.Request{Class: workload.BE}, cpuset.Range(5, 7), cpuset.Set{}, start)
	if p := l.Pools(); p[1].CPUs != l.Shared() || p[2].CPUs != cpuset.Range(5, 7) {
		t.Errorf("pools %v", p)
	}
	l.SetSizes([]int{0, 0, 4})
	if p := l.Pools(); p[2].CPUs.Size() != 4 || !cpuset.Range(5, 7).SubsetOf(p[2].CPUs) {
		t.Errorf("pools %v", p)
	}
}

// TestLawAndLedger lets the pools' controller decide sizes for a ledger in which pins come and go,
// and checks that the ledger has these sizes after each step.
func TestLawAndLedger(t *testing.T) {
	t.Parallel()
	machines := map[string]*topology.Machine{small: machine(t, small), flat: machine(t, flat)}
	rapid.Check(t, func(t *rapid.T) {
		l := New(exclusive(), machines[rapid.SampledFrom([]string{small, flat}).Draw(t, "machine")])
		law := control.NewPools(control.DefaultConfig().Pools, []control.PoolConfig{
			{Name: "critical", Low: 30, High: 50, RCFMax: 100}, {Name: "online", Low: 45, High: 60, RCFMax: 100}, {Name: "batch", Low: 50, High: 80, Min: 1},
		}, time.Second)
		v := control.View{Now: start, ThreadsPerCore: l.Machine().ThreadsPerCore(), Pools: make([]control.Pool, 3)}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				l.Place(who(fmt.Sprint("p", i)), pinned(workload.LSR, rapid.IntRange(1, 4).Draw(t, "pin")), cpuset.Set{}, start)
			case 1:
				l.Release(fmt.Sprint("p", rapid.IntRange(0, i).Draw(t, "released")))
			}
			v.Now, v.Shared = v.Now.Add(rapid.SampledFrom([]time.Duration{time.Second / 10, time.Minute}).Draw(t, "time")), workload.MilliCPU(l.Shared().Size())*1000
			for j, p := range l.Pools() {
				size := p.CPUs.Size()
				v.Pools[j] = control.Pool{Size: size, Request: 8000, At: v.Now, Usage: workload.MilliCPU(rapid.IntRange(0, size*1000).Draw(t, "usage"))}
			}
			sizes, _ := law.Step(&v)
			l.SetSizes(sizes.CPUs)
			if len(sizes.CPUs) > 0 && !slices.Equal(sizesOf(l), sizes.CPUs) {
				t.Fatalf("decided %v, the ledger has %v", sizes.CPUs, sizesOf(l))
			}
			if version := l.Version(); len(sizes.CPUs) > 0 {
				if l.SetSizes(sizes.CPUs); l.Version() != version {
					t.Fatal("the same sizes changed the version")
				}
			}
		}
	})
}

// BenchmarkSetSizes compares a pool that grows and shrinks by four CPUs with a new division of all
// CPUs.
func BenchmarkSetSizes(b *testing.B) {
	for _, text := range []string{"2 packages 2 nodes 16 cores 2 threads", "2 packages 4 nodes 32 cores 2 threads l3 8 cores"} {
		m := machine(b, text)
		for _, anew := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/anew=%v", m.Online.Size(), anew), func(b *testing.B) {
				l := New(exclusive(), m)
				n := m.Online.Size()
				turns := [2][]int{{n / 8, n / 4, 1}, {n/8 + 4, n / 4, 1}}
				moved := 0
				l.SetSizes(turns[1])
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					before := l.pools
					if anew {
						l.pools = nil
					}
					l.SetSizes(turns[i%2])
					for j, set := range before {
						moved += cpuset.Difference(set, l.pools[j]).Size()
					}
				}
				b.ReportMetric(float64(moved)/float64(b.N), "CPUs/op")
			})
		}
	}
}
