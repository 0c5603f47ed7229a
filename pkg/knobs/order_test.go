package knobs

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

func set(list string) CPUSet { return CPUSet(cpuset.MustParse(list)) }

func cpus(name string, level Level, from, to Value) Change {
	return Change{Object: Object{Path: "/" + name, Name: name, Level: level}, Knob: CPUs, From: from, To: to}
}

func quota(name string, level Level, from, to Value) Change {
	return Change{Object: Object{Path: "/" + name, Name: name, Level: level}, Knob: Quota, From: from, To: to}
}

func limit(milli int) CPUQuota {
	const period = 100 * time.Millisecond
	return CPUQuota{Quota: time.Duration(milli) * period / 1000, Period: period}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	const pod, ctr = PodLevel, ContainerLevel
	unlimited := CPUQuota{Quota: -1}
	tests := map[string]struct {
		changes []Change
		want    []string
	}{
		"nothing": {nil, nil},
		"a CPU leaves before it arrives": {[]Change{
			cpus("gets", ctr, set("0"), set("0-1")),
			cpus("gives", ctr, set("1-2"), set("2")),
		}, []string{"gives", "gets"}},
		"the same kind keeps its order": {[]Change{
			cpus("b", ctr, set("0-3"), set("0")), cpus("a", ctr, set("0-3"), set("1")), cpus("c", ctr, set("0-3"), set("2")),
		}, []string{"b", "a", "c"}},
		"parents widen first": {[]Change{
			cpus("ctr", ctr, set("0"), set("0-1")), cpus("pod", pod, set("0"), set("0-1")),
		}, []string{"pod", "ctr"}},
		"children shrink first": {[]Change{
			cpus("pod", pod, set("0-1"), set("0")), cpus("ctr", ctr, set("0-1"), set("0")),
		}, []string{"ctr", "pod"}},
		"moves follow the free CPUs": {[]Change{
			cpus("a", ctr, set("0-1"), set("2-3")), cpus("b", ctr, set("2-3"), set("4-5")), cpus("c", ctr, set("4-7"), set("6-7")),
		}, []string{"c", "b", "a"}},
		"a circle goes by its first": {[]Change{
			cpus("a", ctr, set("0"), set("1")), cpus("b", ctr, set("1"), set("0")),
		}, []string{"a", "b"}},
		"an unknown old set may hold anything": {[]Change{
			cpus("gets", ctr, set("0"), set("0-1")), cpus("unknown", ctr, nil, set("2-3")),
		}, []string{"unknown", "gets"}},
		"all is more than any set": {[]Change{
			cpus("to all", ctr, set("0"), set("")), cpus("from all", ctr, set(""), set("0")),
		}, []string{"from all", "to all"}},
		"memory nodes aren't CPUs": {[]Change{
			cpus("cpus", ctr, set("2"), set("1")),
			{Object: Object{Path: "/mems", Name: "mems", Level: ctr}, Knob: Mems, From: set("1"), To: set("0")},
		}, []string{"cpus", "mems"}},
		"the pod's quota is raised first": {[]Change{
			quota("ctr", ctr, limit(1000), limit(1500)), quota("pod", pod, limit(2000), unlimited),
		}, []string{"pod", "ctr"}},
		"the pod's quota is lowered last": {[]Change{
			quota("pod", pod, unlimited, limit(1000)), quota("ctr", ctr, limit(2000), limit(500)),
		}, []string{"ctr", "pod"}},
		"an unknown quota's pod is first": {[]Change{
			quota("ctr", ctr, nil, limit(500)), quota("pod", pod, nil, limit(1000)),
		}, []string{"pod", "ctr"}},
		"the period counts": {[]Change{
			quota("ctr", ctr, limit(500), CPUQuota{Quota: 60 * time.Millisecond, Period: 200 * time.Millisecond}),
			quota("pod", pod, limit(1000), CPUQuota{Quota: 120 * time.Millisecond, Period: 200 * time.Millisecond}),
		}, []string{"ctr", "pod"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := slices.Clone(test.changes)
			if got := names(Order(test.changes)); !slices.Equal(got, test.want) {
				t.Errorf("order %v, want %v", got, test.want)
			}
			if !slices.Equal(names(test.changes), names(before)) {
				t.Errorf("Order changed its argument")
			}
		})
	}
}

func names(changes []Change) []string {
	var names []string
	for _, c := range changes {
		names = append(names, c.Object.Name)
	}
	return names
}

// If any order gives every CPU to one holder at a time, so does Order's.
func TestOrderFindsAnOrderWithoutOverlap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "containers")
		from, to := make([]cpuset.Set, n), make([]cpuset.Set, n)
		for cpu := range 8 {
			if i := rapid.IntRange(-1, n-1).Draw(t, "old holder"); i >= 0 {
				from[i].Add(cpu)
			}
			if i := rapid.IntRange(-1, n-1).Draw(t, "new holder"); i >= 0 {
				to[i].Add(cpu)
			}
		}
		var changes []Change
		for i := range n {
			// A CPU of its own keeps each set from being empty, since an empty set stands for all
			// CPUs.
			from[i].Add(8 + i)
			to[i].Add(8 + i)
			changes = append(changes, cpus(string(rune('a'+i)), ContainerLevel, CPUSet(from[i]), CPUSet(to[i])))
		}
		ordered := Order(changes)
		if got := names(ordered); !sameMembers(got, names(changes)) {
			t.Fatalf("%v is no permutation of the %d changes", got, n)
		}
		if overlaps(ordered) && !allOverlap(changes, 0) {
			t.Errorf("%v: two holders of a CPU at once, and another order has none", ordered)
		}
	})
}

func sameMembers(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// overlaps makes the changes and reports whether a CPU ever has two holders.
func overlaps(changes []Change) bool {
	has := map[string]cpuset.Set{}
	for _, c := range changes {
		has[c.Object.Path] = cpuset.Set(c.From.(CPUSet))
	}
	for _, c := range changes {
		has[c.Object.Path] = cpuset.Set(c.To.(CPUSet))
		var all cpuset.Set
		for _, s := range has {
			if all.Overlaps(s) {
				return true
			}
			all = cpuset.Union(all, s)
		}
	}
	return false
}

// allOverlap reports whether every permutation of changes[from:] gives a CPU two holders.
func allOverlap(changes []Change, from int) bool {
	if from == len(changes) {
		return overlaps(changes)
	}
	for i := from; i < len(changes); i++ {
		changes[from], changes[i] = changes[i], changes[from]
		every := allOverlap(changes, from+1)
		changes[from], changes[i] = changes[i], changes[from]
		if !every {
			return false
		}
	}
	return true
}

func BenchmarkOrder(b *testing.B) {
	var changes []Change
	for range 400 {
		changes = append(changes, cpus("c", ContainerLevel, set("0-511"), set("4-511")))
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(Order(changes)) != len(changes) {
			b.Fatal("a change is missing")
		}
	}
}
