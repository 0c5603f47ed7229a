package cpualloc

import (
	"cmp"
	"errors"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// mask is a set of the CPUs 0 to 31.
type mask uint32

func maskOf(s cpuset.Set) mask {
	var m mask
	for cpu := range s.All() {
		m |= 1 << cpu
	}
	return m
}

func (m mask) size() int { return bits.OnesCount32(uint32(m)) }

// oracle tries every subset of a small machine.
type oracle struct {
	nodes, l3s, cores, efficiency []mask
}

func newOracle(m *topology.Machine) *oracle {
	var o oracle
	var efficiency mask
	for _, node := range m.Nodes {
		o.nodes = append(o.nodes, maskOf(node.CPUs))
	}
	for _, l3 := range m.L3s {
		o.l3s = append(o.l3s, maskOf(l3.CPUs))
	}
	for _, core := range m.Cores {
		o.cores = append(o.cores, maskOf(core.CPUs))
		if core.Kind == topology.Efficiency {
			efficiency |= maskOf(core.CPUs)
		}
	}
	if efficiency != 0 {
		o.efficiency = []mask{efficiency}
	}
	return &o
}

// score is the part of the objective that the oracle compares exactly: nodes, L3 domains, core
// kinds, split cores.
type score [4]int

func (s score) compare(t score) int {
	return cmp.Or(cmp.Compare(s[0], t[0]), cmp.Compare(s[1], t[1]), cmp.Compare(s[2], t[2]), cmp.Compare(s[3], t[3]))
}

func (o *oracle) score(chosen mask, p *Preference) score {
	touched := func(domains []mask, spread bool) int {
		n := 0
		for _, d := range domains {
			switch {
			case spread:
				n += (d & chosen).size() * (d & chosen).size()
			case d&chosen != 0:
				n++
			}
		}
		return n
	}
	s := score{touched(o.nodes, p.NUMA == workload.NUMASpread), touched(o.l3s, p.L3 == workload.L3Spread)}
	for _, efficiency := range o.efficiency {
		switch chosen & efficiency {
		case 0:
		case chosen:
			s[2] = 1
		default:
			s[2] = 2
		}
	}
	for _, core := range o.cores {
		if core&chosen != 0 && core&chosen != core {
			s[3]++
		}
	}
	return s
}

// allowed reports whether the policies permit taking chosen. CPUs that the container already has
// are always permitted.
func (o *oracle) allowed(chosen, free, keep mask, p *Preference) bool {
	if p.NUMA == workload.NUMASingle {
		nodes := 0
		for _, node := range o.nodes {
			if node&chosen != 0 {
				nodes++
			}
		}
		if nodes > 1 && chosen != keep {
			return false
		}
	}
	for _, core := range o.cores {
		taken := core & chosen &^ keep
		switch {
		case taken == 0:
		case p.SMT == workload.SMTFullCore && core&chosen != core:
			return false
		case p.SMT == workload.SMTOnePerCore && (taken.size() > 1 || core&free != core):
			return false
		}
	}
	return true
}

// best returns the best score of any choice; ok is false if none is allowed.
func (o *oracle) best(free, keep mask, n int, p *Preference) (score, bool) {
	var least score
	found := false
	for add := free; ; add = (add - 1) & free {
		if add.size() == n-keep.size() && o.allowed(add|keep, free, keep, p) {
			if s := o.score(add|keep, p); !found || s.compare(least) < 0 {
				least, found = s, true
			}
		}
		if add == 0 {
			return least, found
		}
	}
}

// drawMachine draws a machine of at most about 14 CPUs, with L3 domains inside of nodes or nodes
// inside of L3 domains, and cores with different numbers of threads.
func drawMachine(t *rapid.T) *topology.Machine {
	cpus := rapid.IntRange(1, 14).Draw(t, "cpus")
	threads := rapid.SampledFrom([]int{1, 2, 2, 2, 4}).Draw(t, "threads")
	inner := rapid.IntRange(1, 3).Draw(t, "cores in the inner domain")
	outer := rapid.IntRange(1, 3).Draw(t, "inner domains in the outer")
	nodeInL3 := rapid.Bool().Draw(t, "nodes in L3")
	hybrid := rapid.IntRange(0, 4).Draw(t, "hybrid") == 0
	packages := rapid.IntRange(1, 2).Draw(t, "outer domains in a package")
	var places []place
	for core := 0; len(places) < cpus; core++ {
		p := place{core: core, node: core / inner / outer, l3: core / inner}
		if nodeInL3 {
			p.node, p.l3 = p.l3, p.node
		}
		p.die = core / inner / outer
		p.pkg = p.die / packages
		online := threads
		if rapid.IntRange(0, 7).Draw(t, "thread offline") == 0 {
			online = max(1, threads-1)
		}
		if hybrid && core%3 == 2 {
			online, p.kind = 1, topology.Efficiency
		}
		for range online {
			places = append(places, p)
		}
	}
	shuffle := rapid.Permutation(places).Draw(t, "places")
	return build(shuffle, func(a, b int) int { return 10 + 3*(a^b) })
}

func drawSubset(t *rapid.T, of cpuset.Set, name string) cpuset.Set {
	var s cpuset.Set
	percent := rapid.SampledFrom([]int{20, 50, 80, 95}).Draw(t, name+" percent")
	for cpu := range of.All() {
		if rapid.IntRange(0, 99).Draw(t, name) < percent {
			s.Add(cpu)
		}
	}
	return s
}

func drawPreference(t *rapid.T, m *topology.Machine) Preference {
	p := Preference{
		NUMA: rapid.SampledFrom([]workload.NUMAPolicy{workload.NUMAPrefer, workload.NUMAPrefer, workload.NUMASingle, workload.NUMASpread}).Draw(t, "NUMA"),
		SMT:  rapid.SampledFrom([]workload.SMTPolicy{workload.SMTDefault, workload.SMTAny, workload.SMTFullCore, workload.SMTOnePerCore}).Draw(t, "SMT"),
		L3:   rapid.SampledFrom([]workload.L3Policy{workload.L3Pack, workload.L3Pack, workload.L3Spread}).Draw(t, "L3"),
	}
	if rapid.Bool().Draw(t, "near") {
		p.Near = drawSubset(t, m.Online, "near")
	}
	return p
}

// Take finds a choice as good as the best of all subsets, and refuses only if no subset is
// allowed.
func TestTakeAgainstEverySubset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		p := drawPreference(t, m)
		free := drawSubset(t, m.Online, "free")
		if rapid.Bool().Draw(t, "grow") {
			p.Held = drawSubset(t, free, "keep")
			if rapid.Bool().Draw(t, "keep is not free") {
				free = cpuset.Difference(free, p.Held)
			}
		}
		n := rapid.IntRange(max(1, p.Held.Size()), max(1, cpuset.Union(free, p.Held).Size())+1).Draw(t, "n")
		a, o := New(m), newOracle(m)

		got, err := a.Take(free, n, p)
		freeMask, keep := maskOf(cpuset.Difference(free, p.Held)), maskOf(p.Held)
		best, possible := o.best(freeMask, keep, n, &p)
		if (err == nil) != possible {
			t.Fatalf("got %v, %v; possible: %v", got, err, possible)
		}
		if err != nil {
			_, ever := o.best(maskOf(cpuset.Difference(m.Online, p.Held)), keep, n, &p)
			var shortage *ShortageError
			if errors.As(err, &shortage) != ever {
				t.Fatalf("%v (%T); possible with all CPUs free: %v", err, err, ever)
			}
			return
		}
		if got.Size() != n || !p.Held.SubsetOf(got) || !got.SubsetOf(cpuset.Union(free, p.Held)) {
			t.Fatalf("%d of %v and %v: got %v", n, free, p.Held, got)
		}
		if !o.allowed(maskOf(got), freeMask, keep, &p) {
			t.Fatalf("%v breaks the policies", got)
		}
		if s := o.score(maskOf(got), &p); s != best {
			t.Fatalf("%v scores %v, best is %v", got, s, best)
		}
		again, err := New(m).Take(free, n, p)
		if err != nil || again != got {
			t.Fatalf("first %v, then %v (%v)", got, again, err)
		}
		if warm, err := a.Take(free, n, p); err != nil || warm != got {
			t.Fatalf("first %v, then with used memory %v (%v)", got, warm, err)
		}
	})
}

// Shrink finds a choice as good as the best of all subsets.
func TestShrinkAgainstEverySubset(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		p := drawPreference(t, m)
		if p.SMT == workload.SMTOnePerCore {
			p.SMT = workload.SMTAny
		}
		held := drawSubset(t, m.Online, "held")
		n := rapid.IntRange(1, max(1, held.Size())).Draw(t, "n")
		o := newOracle(m)

		got, err := New(m).Shrink(held, n, p)
		best, possible := o.best(maskOf(held), 0, n, &p)
		if (err == nil) != possible {
			t.Fatalf("got %v, %v; possible: %v", got, err, possible)
		}
		if err != nil {
			return
		}
		if got.Size() != n || !got.SubsetOf(held) || !o.allowed(maskOf(got), maskOf(held), 0, &p) {
			t.Fatalf("%d of %v: got %v", n, held, got)
		}
		if s := o.score(maskOf(got), &p); s != best {
			t.Fatalf("%v scores %v, best is %v", got, s, best)
		}
	})
}

// With NUMA spread, no node has two CPUs more than another that still has a free one.
func TestSpreadIsEven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMachine(t)
		free := drawSubset(t, m.Online, "free")
		if free.IsEmpty() {
			return
		}
		n := rapid.IntRange(1, free.Size()).Draw(t, "n")
		got, err := New(m).Take(free, n, Preference{NUMA: workload.NUMASpread})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range m.Nodes {
			for _, y := range m.Nodes {
				fewer := cpuset.IntersectSize(x.CPUs, got)
				if fewer < cpuset.IntersectSize(x.CPUs, free) && cpuset.IntersectSize(y.CPUs, got) > fewer+1 {
					t.Fatalf("%d of %v: got %v, uneven on nodes %d and %d", n, free, got, x.ID, y.ID)
				}
			}
		}
	})
}

// If nodes and L3 domains cross, the choice is valid and on the fewest nodes, and Take refuses
// only what is impossible.
func TestTakeWhereDomainsCross(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var places []place
		for core := range rapid.IntRange(1, 6).Draw(t, "cores") {
			p := place{
				core: core,
				node: rapid.IntRange(0, 2).Draw(t, "node"),
				l3:   rapid.IntRange(0, 2).Draw(t, "l3"),
				pkg:  rapid.IntRange(0, 1).Draw(t, "package"),
			}
			places = append(places, p, p)
		}
		m := build(places, flat)
		p := drawPreference(t, m)
		free := drawSubset(t, m.Online, "free")
		n := rapid.IntRange(1, free.Size()+1).Draw(t, "n")
		o := newOracle(m)

		got, err := New(m).Take(free, n, p)
		best, possible := o.best(maskOf(free), 0, n, &p)
		if (err == nil) != possible {
			t.Fatalf("got %v, %v; possible: %v", got, err, possible)
		}
		if err != nil {
			return
		}
		if got.Size() != n || !got.SubsetOf(free) || !o.allowed(maskOf(got), maskOf(free), 0, &p) {
			t.Fatalf("%d of %v: got %v", n, free, got)
		}
		if s := o.score(maskOf(got), &p); s[0] != best[0] {
			t.Fatalf("%v scores %v, best is %v", got, s, best)
		}
	})
}
