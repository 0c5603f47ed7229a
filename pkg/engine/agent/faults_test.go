package agent

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// brokenSeeds are seeds that once broke an invariant. What they found has tests of its own, since a seed
// makes other choices as soon as this test does: see killed_test.go.
func brokenSeeds() []uint64 {
	return []uint64{15, 35, 58, 71, 76, 78, 82, 85, 93, 141, 153, 159, 188, 193, 562, 606, 713, 922, 1896, 3869, 5156, 5254}
}

// faultsPerNode is how many faults a node goes through.
const faultsPerNode = 10

// TestFaults injects faults into nodes on which containers come and go: SLUICE_FAULTS of them, from
// the seed SLUICE_SEED on. After each fault the node comes to rest, and the invariants hold. In the
// end, everything is given back. The order of some of the plugin's writes is that of a map: a seed that
// fails may need some runs to fail again.
func TestFaults(t *testing.T) {
	t.Parallel()
	number := func(name string, usual int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(usual)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	first := uint64(number("SLUICE_SEED", 1))
	seeds := brokenSeeds()
	for i := range uint64(number("SLUICE_FAULTS", 200) / faultsPerNode) {
		seeds = append(seeds, first+i)
	}
	var mu sync.Mutex
	counts := map[string]int{}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%5d × %s", counts[name], name)
		}
	})
	for _, seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			disk := smallDisk(t)
			synctest.Test(t, func(t *testing.T) {
				f := newFaultNode(t, seed, disk)
				defer f.leave()
				defer func() {
					if t.Failed() {
						t.Logf("seed %d:\n%s", seed, f.story.String())
						if testing.Verbose() {
							t.Logf("log:\n%s", f.log.text.String())
						}
					}
				}()
				for range faultsPerNode {
					f.live()
					kind := oneOf(f.dice, faultKinds())
					mu.Lock()
					counts[kind.name]++
					mu.Unlock()
					pins := f.held()
					f.tell("FAULT: %s", kind.name)
					kind.do(f)
					f.settle()
					var seen reader
					f.check(&seen, pins)
					if t.Failed() {
						return
					}
				}
				f.die()
				f.giveAllBack()
			})
		})
	}
}

// held returns the CPUs of pins that run.
func (f *faultNode) held() map[string]cpuset.Set {
	pins := f.pins()
	maps.DeleteFunc(pins, func(name string, _ cpuset.Set) bool { return f.specs[name] == nil || !f.running(name) })
	return pins
}
