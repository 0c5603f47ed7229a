package cpualloc

import (
	"errors"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

var (
	set = cpuset.MustParse

	uma      = shape{1, 1, 1, 4, 2}.machine() // 4 cores: 0,4 1,5 2,6 3,7
	noSMT    = shape{1, 2, 1, 4, 1}.machine() // nodes 0-3, 4-7
	twoNodes = shape{2, 1, 1, 4, 2}.machine() // nodes 0-3,8-11 and 4-7,12-15
	amd      = shape{2, 2, 2, 2, 2}.machine() // 16 cores, L3s of 2 cores: 0-1,16-17 ...; nodes of 4: 0-3,16-19 ...; packages of 8
	snc      = subNUMA(2, 2, 4, 1)            // nodes of 4; L3s of 8: 0-7, 8-15
	alder    = hybrid(2, 4)                   // cores 0,1 2,3 and 4 5 6 7
	big      = shape{2, 2, 1, 8, 1}.machine() // nodes 0-7 8-15 | 16-23 24-31
	twoL3s   = shape{1, 1, 2, 4, 1}.machine() // 0-3, 4-7 in one node
	power    = shape{1, 2, 1, 2, 4}.machine() // threads c, c+4, c+8, c+12; nodes 0-1, 2-3
)

func TestTake(t *testing.T) {
	t.Parallel()
	single := Preference{NUMA: workload.NUMASingle}
	spread := Preference{NUMA: workload.NUMASpread}
	fullCore := Preference{SMT: workload.SMTFullCore}
	onePerCore := Preference{SMT: workload.SMTOnePerCore}
	l3Spread := Preference{L3: workload.L3Spread}
	keep := func(list string) Preference { return Preference{Held: set(list)} }
	near := func(list string) Preference { return Preference{Near: set(list)} }
	for _, test := range []struct {
		name    string
		machine *topology.Machine
		free    string
		n       int
		prefer  Preference
		want    string
	}{
		{"a whole core", uma, "0-7", 2, Preference{}, "0,4"},
		{"an odd CPU on a broken core", uma, "0-2,4-7", 1, Preference{}, "7"},
		{"three: a core and the broken core", uma, "0-2,4-7", 3, Preference{}, "0,4,7"},
		{"one node alone has six", big, "6-7,14-15,22-23,26-31", 6, Preference{}, "26-31"},
		{"NUMA before L3 and package", big, "6-7,28-31", 6, Preference{}, "6-7,28-31"},
		{"the node with least to spare", noSMT, "0-3,5-7", 2, Preference{}, "5-6"},
		{"the node with least to spare that fits", noSMT, "0-3,7", 2, Preference{}, "0-1"},
		{"the L3 with least to spare", amd, "0-15,17-31", 2, Preference{}, "1,17"},
		{"whole cores before best fit", amd, "0-14,17-31", 2, Preference{}, "1,17"},
		{"the L3 without a whole core", amd, "0,2-3,16", 1, Preference{}, "2"},
		{"two L3s of one node", amd, "0-31", 6, Preference{}, "0-2,16-18"},
		{"nodes of one package", amd, "2-13,18-29", 12, Preference{}, "2-7,18-23"},
		{"two nodes of one package", amd, "0-31", 16, Preference{}, "0-7,16-23"},
		{"sub-NUMA: nodes under one L3", snc, "3-15", 6, Preference{}, "8-13"},
		{"sub-NUMA: fewest nodes though two L3s", snc, "0-2,4,8-11", 6, Preference{}, "0-2,8-10"},
		{"sub-NUMA: single", snc, "1-3,4-7", 4, single, "4-7"},
		{"single", noSMT, "0-2,4-7", 4, single, "4-7"},
		{"spread evenly", noSMT, "0-7", 4, spread, "0-1,4-5"},
		{"spread: remainder on the lowest", noSMT, "0-7", 3, spread, "0-1,4"},
		{"spread: remainder near", noSMT, "0-7", 3, Preference{NUMA: workload.NUMASpread, Near: set("5")}, "0,4-5"},
		{"spread as far as free CPUs go", noSMT, "0,4-7", 4, spread, "0,4-6"},
		{"spread with kept ones", noSMT, "2-7", 4, Preference{NUMA: workload.NUMASpread, Held: set("0-1")}, "0-1,4-5"},
		{"spread full cores", twoNodes, "0-15", 4, Preference{NUMA: workload.NUMASpread, SMT: workload.SMTFullCore}, "0,4,8,12"},
		{"spread packed within nodes", amd, "0-31", 8, spread, "0,4,8,12,16,20,24,28"},
		{"L3 spread", amd, "0-31", 4, l3Spread, "0,2,16,18"},
		{"L3 spread with kept ones", twoL3s, "2-7", 4, Preference{L3: workload.L3Spread, Held: set("0-1")}, "0-1,4-5"},
		{"full cores", uma, "0-2,4-7", 4, fullCore, "0-1,4-5"},
		{"full cores over nodes", twoNodes, "0-1,4,8-9,12-15", 6, fullCore, "0-1,4,8-9,12"},
		{"full cores of four threads", power, "0-15", 4, fullCore, "0,4,8,12"},
		{"one thread per core", uma, "0-7", 3, onePerCore, "0-2"},
		{"one thread of free cores only", uma, "1-7", 3, onePerCore, "1-3"},
		{"near a device", noSMT, "0-7", 2, near("6"), "4-5"},
		{"near a device, L3", amd, "0-31", 2, near("2-3,18-19"), "2,18"},
		{"fewest nodes before near", noSMT, "0-3,7", 2, near("7"), "0-1"},
		{"grow in the same core", uma, "0,2-7", 2, keep("1"), "1,5"},
		{"grow in the same node", noSMT, "1-7", 3, keep("5"), "4-6"},
		{"grow in the same L3", amd, "0-5,7-31", 3, keep("6"), "6-7,22"},
		{"grow into the near node", big, "8-31", 10, keep("0-7"), "0-9"},
		{"grow to the same number", noSMT, "", 2, keep("1,6"), "1,6"},
		{"grow out of nothing free in the node", amd, "8-31", 3, keep("0-1"), "0-1,16"},
		{"complete a kept core of four", power, "1-15", 3, keep("0"), "0,4,8"},
		{"performance cores first", alder, "0-7", 2, Preference{}, "0-1"},
		{"one CPU on a performance core", alder, "0-7", 1, Preference{}, "0"},
		{"one kind though a core splits", alder, "0-2,4-7", 3, Preference{}, "0-2"},
		{"efficiency cores rather than both kinds", alder, "2-7", 4, Preference{}, "4-7"},
		{"both kinds where neither suffices", alder, "0-7", 6, Preference{}, "0-5"},
		{"full cores of both kinds", alder, "0,2-7", 3, fullCore, "4-6"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := New(test.machine).Take(set(test.free), test.n, test.prefer)
			if err != nil {
				t.Fatal(err)
			}
			if want := set(test.want); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestShrink(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		machine *topology.Machine
		held    string
		n       int
		prefer  Preference
		want    string
	}{
		{"give up the remote node", noSMT, "2-6", 3, Preference{}, "4-6"},
		{"stay where most is", noSMT, "0-1,4-6", 2, Preference{}, "4-5"},
		{"give up the other L3", amd, "0-2,16-17", 4, Preference{}, "0-1,16-17"},
		{"give up whole cores", uma, "0-2,4-5", 3, Preference{}, "0,2,4"},
		{"one per core", uma, "0-3", 2, Preference{SMT: workload.SMTOnePerCore}, "0-1"},
		{"full cores", uma, "0-2,5-6", 4, Preference{SMT: workload.SMTFullCore}, "1-2,5-6"},
		{"spread", noSMT, "0-3,4-5", 4, Preference{NUMA: workload.NUMASpread}, "0-1,4-5"},
		{"all", uma, "1,6", 2, Preference{}, "1,6"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := New(test.machine).Shrink(set(test.held), test.n, test.prefer)
			if err != nil {
				t.Fatal(err)
			}
			if want := set(test.want); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// With eight packages in a ring of two hops, the two chosen nodes must be neighbours.
func TestTakeCloseNodes(t *testing.T) {
	t.Parallel()
	var places []place
	for cpu := range 16 {
		places = append(places, place{core: cpu, l3: cpu / 2, die: cpu / 2, node: cpu / 2, pkg: cpu / 2})
	}
	ring := build(places, func(a, b int) int {
		hops := min((a-b+8)%8, (b-a+8)%8)
		return 10 + 10*min(hops, 3)
	})
	for _, test := range []struct {
		free string
		n    int
		want string
	}{
		{"0-1,4-5,8-9,10-11", 4, "8-11"},
		{"0-1,6-7,14-15", 3, "0-1,14"},
		{"0-1,6-7,8-9,10-11", 6, "6-11"},
		{"0-3,6-7,9", 3, "6-7,9"},
	} {
		got, err := New(ring).Take(set(test.free), test.n, Preference{})
		if want := set(test.want); err != nil || got != want {
			t.Errorf("%d of %s: got %v (%v), want %v", test.n, test.free, got, err, want)
		}
	}
}

// Among nodes of two CPUs at equal distances, the die or package decides.
func TestTakeOneDieOnePackage(t *testing.T) {
	t.Parallel()
	var dies, packages []place
	for cpu := range 8 {
		p := place{core: cpu, l3: cpu / 2, node: cpu / 2, die: cpu / 4}
		dies = append(dies, p)
		p.die, p.pkg = cpu/2, cpu/4
		packages = append(packages, p)
	}
	for _, places := range [][]place{dies, packages} {
		got, err := New(build(places, flat)).Take(set("2-7"), 4, Preference{})
		if want := set("4-7"); err != nil || got != want {
			t.Errorf("got %v (%v), want %v", got, err, want)
		}
	}
}

// By their number, the CPUs of two of four nodes are enough for seven, but whole cores only add up
// with the third node's single thread.
func TestTakeFullCoresThatDoNotAddUp(t *testing.T) {
	t.Parallel()
	m := build([]place{
		{core: 0}, {core: 0}, {core: 1}, {core: 1},
		{core: 2, node: 1, l3: 1}, {core: 2, node: 1, l3: 1}, {core: 3, node: 1, l3: 1}, {core: 3, node: 1, l3: 1},
		{core: 4, node: 2, l3: 2},
	}, flat)
	got, err := New(m).Take(m.Online, 7, Preference{SMT: workload.SMTFullCore})
	if want := set("0-5,8"); err != nil || got != want {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		machine  *topology.Machine
		free     string
		n        int
		prefer   Preference
		shortage bool
		want     string
	}{
		{"none", uma, "0-7", 0, Preference{}, false,
			"0 CPUs: the number is at least 1"},
		{"too few", uma, "0-2", 4, Preference{}, true,
			"4 CPUs needed, 3 free"},
		{"more than there are", uma, "0-7", 9, Preference{}, false,
			"9 CPUs: this machine has 8 CPUs in 4 cores and 1 NUMA nodes; ask for fewer, or use a larger machine"},
		{"no node has enough", noSMT, "0-2,4-6", 4, Preference{NUMA: workload.NUMASingle}, true,
			"4 CPUs in one NUMA node needed, 6 free but not so that they fit: use numa prefer, or wait until neighbours end"},
		{"no node is that large", noSMT, "0-7", 5, Preference{NUMA: workload.NUMASingle}, false,
			"5 CPUs in one NUMA node: this machine has 8 CPUs in 8 cores and 2 NUMA nodes; ask for fewer, or use numa prefer"},
		{"half a core", uma, "0-7", 3, Preference{SMT: workload.SMTFullCore}, false,
			"3 CPUs as full cores: this machine's cores have 2 threads each; ask for a multiple of 2, or use smt any"},
		{"no whole core", uma, "0-3", 2, Preference{SMT: workload.SMTFullCore}, true,
			"2 CPUs as full cores needed, 4 free but not so that they fit: use smt any, or wait until neighbours end"},
		{"more than cores", uma, "0-7", 5, Preference{SMT: workload.SMTOnePerCore}, false,
			"5 CPUs with one thread per core: this machine has 8 CPUs in 4 cores and 1 NUMA nodes; ask for fewer, or use smt any"},
		{"less than kept", uma, "0-7", 1, Preference{Held: set("0-1")}, false,
			"1 CPU: 2 are to be kept already; shrink the set instead"},
		{"kept on two nodes", noSMT, "0-7", 4, Preference{NUMA: workload.NUMASingle, Held: set("0,4")}, false,
			"4 CPUs in one NUMA node: this machine has 8 CPUs in 8 cores and 2 NUMA nodes, and CPUs 0,4 are to be kept; ask for fewer, or use numa prefer"},
		{"kept node is full", noSMT, "4-7", 2, Preference{NUMA: workload.NUMASingle, Held: set("0")}, true,
			"1 more for 2 CPUs in one NUMA node needed, 4 free but not so that they fit: use numa prefer, or wait until neighbours end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := New(test.machine).Take(set(test.free), test.n, test.prefer)
			if err == nil {
				t.Fatalf("got %v", got)
			}
			if err.Error() != test.want {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
			var shortage *ShortageError
			var impossible *ImpossibleError
			if errors.As(err, &shortage) != test.shortage || errors.As(err, &impossible) == test.shortage {
				t.Errorf("%T", err)
			}
		})
	}
	for n, want := range map[int]string{
		0: "0 CPUs: the number is at least 1",
		3: "3 CPUs: only 2 are held; take more instead",
	} {
		if _, err := New(uma).Shrink(set("0-1"), n, Preference{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	_, err := New(uma).Shrink(set("0-2"), 2, Preference{SMT: workload.SMTFullCore})
	if want := "2 CPUs as full cores: the CPUs held, 0-2, have no such part"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTakeIgnoresCPUsThatAreOffline(t *testing.T) {
	t.Parallel()
	got, err := New(uma).Take(set("7,100"), 2, Preference{Held: set("3,200")})
	if want := set("3,7"); err != nil || got != want {
		t.Errorf("got %v (%v), want %v", got, err, want)
	}
}
