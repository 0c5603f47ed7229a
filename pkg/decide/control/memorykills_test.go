package control

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// memcg models what the kernel does with a node's memory. The cgroup of all pods has a limit; it
// contains services, and batch work with the limit that the controller sets.
type memcg struct {
	*loop
	*testing.T
	services map[string]int64 // in bytes, none of them cache
	goal     int64            // goal of the controller's last step
	random   *rand.Rand
	killed   int
	refused  int
}

func (k *memcg) used() (used int64) {
	for _, bytes := range k.services {
		used += bytes
	}
	return used
}

// batch lets a batch pod allocate memory in small amounts, as page faults do. At the limit of its
// cgroup the kernel drops page cache below it, and if none is left it kills the pod.
func (k *memcg) batch(uid string, anon, cache int64) {
	at := k.find(uid)
	for anon+cache > 0 && at >= 0 {
		m := &k.Containers[at].Container.Memory
		step := min(anon, 16*mib)
		anon -= step
		m.Anon += step
		m.Current += step
		if held, _ := k.held(); held < k.limit { // page cache fills the rest of the limit
			filled := min(cache, 16*mib, k.limit-held)
			m.Cache += filled
			m.Current += filled
		}
		cache -= min(cache, 16*mib)
		k.reclaim(k.limit)
		if held, _ := k.held(); held > k.limit {
			k.killed++
			// The invariant is violated if the limit was more than its own step below what batch
			// work might hold when the controller last measured, and still is.
			free := bytesPart(k.MemoryTotal, DefaultConfig().Memory.SafePercent) - k.used() - bytesPart(k.MemoryTotal, DefaultConfig().Memory.HeadroomPercent)
			if may := min(k.goal, free) - 2*bytesPart(k.MemoryTotal, limitDead); k.limit < may {
				k.Fatalf("%s was killed at a limit of %s, and batch may hold %s: services use %s of %s", uid, MemoryText(k.limit), MemoryText(may), MemoryText(k.used()), MemoryText(k.MemoryTotal))
			}
			k.remove(uid)
			return
		}
	}
}

func (k *memcg) find(uid string) int {
	for i := range k.Containers {
		if k.Containers[i].ID == uid {
			return i
		}
	}
	return -1
}

// reclaim drops page cache of batch work down to a limit.
func (k *memcg) reclaim(limit int64) {
	held, _ := k.held()
	for i := range k.Containers {
		m := &k.Containers[i].Container.Memory
		drop := min(m.Cache, max(0, held-limit))
		m.Cache -= drop
		m.Current -= drop
		held -= drop
	}
}

// serve sets the memory of a service. If the node has no free memory, page cache of batch work is
// dropped; if that is not enough, the service would be killed for memory that batch work holds.
func (k *memcg) serve(name string, bytes int64) {
	before := k.services[name]
	k.services[name] = bytes
	k.reclaim(k.MemoryTotal - k.used())
	if held, _ := k.held(); held > 0 && k.used()+held > k.MemoryTotal {
		k.Fatalf("service %s grows from %s to %s, and batch holds %s of %s; %d evictions", name, MemoryText(before), MemoryText(bytes), MemoryText(held), MemoryText(k.MemoryTotal), k.evicted)
	}
}

// second runs one step of the controllers and carries out its result.
func (k *memcg) second() {
	held, cache := k.held()
	k.Node.Memory.Free = k.MemoryTotal - k.used() - held
	k.Node.Memory.Available = k.Node.Memory.Free + cache
	k.tick()
	got, _ := k.memory.Step(&k.View)
	k.goal = got.Goal
	for _, r := range got.Reclaim {
		if at := k.find(r.ID); at >= 0 {
			m := &k.Containers[at].Container.Memory
			gives := min(r.Bytes, m.Cache)
			m.Cache -= gives
			m.Current -= gives
		}
	}
	held, _ = k.held()
	k.limit = max(got.BatchLimit, held+k.Granted)
	var requests []EvictRequest
	if got.Evict != nil {
		requests = append(requests, *got.Evict)
	}
	desired, _ := k.eviction.Step(&k.View, 0, requests)
	if desired.Evict != nil { // the runtime evicts at once
		k.remove(desired.Evict.UID)
		k.eviction.Done(desired.Evict.UID, EvictCRI, nil, k.Now)
		k.evicted++
	}
	k.Granted = 0
}

// TestMemoryKills lets services and batch pods come, grow, crash and leave at random. The kernel
// kills no batch pod at its limit while batch work may hold more, no batch pod that starts within
// its grant, and no service for memory that batch work holds.
func TestMemoryKills(t *testing.T) {
	t.Parallel()
	killed, evicted, refused := 0, 0, 0
	for seed := range uint64(300) {
		k := &memcg{loop: newLoop(true), T: t, services: map[string]int64{}, random: rand.New(rand.NewPCG(seed, 1))}
		k.MemoryTotal = []int64{4, 16, 100}[seed%3] * gib
		k.Node.Memory.Total, k.Node.Memory.Low = k.MemoryTotal, k.MemoryTotal/1000
		k.second()
		for range 300 {
			k.act()
			k.second()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		killed, evicted, refused = killed+k.killed, evicted+k.evicted, refused+k.refused
	}
	t.Logf("%d batch pods were killed where batch might hold no more, %d evicted, %d refused", killed, evicted, refused)
	if killed == 0 || evicted == 0 || refused == 0 {
		t.Error("memory never ran short: that tests nothing")
	}
}

// act lets one service and one batch pod do something at random. Services grow by at most a
// twenty-fifth of the node per second, because faster growth takes faster evictions than a runtime
// can do.
func (k *memcg) act() {
	name := fmt.Sprintf("service-%d", k.random.IntN(3))
	if k.random.IntN(40) == 0 {
		delete(k.services, name)
	} else {
		k.serve(name, min(k.services[name]+k.random.Int64N(bytesPart(k.MemoryTotal, 4)), bytesPart(k.MemoryTotal, 32)))
	}
	uid := fmt.Sprintf("batch-%d", k.random.IntN(4))
	there := k.find(uid) >= 0
	most := max(bytesPart(k.MemoryTotal, spareRoom), leastSpareRoom) * 9 / 10
	const grant = 512 * mib
	switch {
	case there && k.random.IntN(20) == 0:
		k.remove(uid)
	case there:
		k.batch(uid, k.random.Int64N(most)>>k.random.IntN(4), k.random.Int64N(most))
	case k.memory.desired.Room < grant: // the agent doesn't let it start
		k.refused++
	default:
		k.add(actor{uid: uid, class: workload.BE})
		k.Granted = grant
		held, _ := k.held()
		k.limit = max(k.limit, held+grant)
		before := k.killed
		if k.batch(uid, grant, 0); k.killed > before {
			k.Errorf("%s was killed as it started", uid)
		}
	}
}
