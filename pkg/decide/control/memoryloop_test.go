package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// loop is a node whose batch work takes all the memory that it may have, with the controllers
// Memory and Eviction.
type loop struct {
	*stage
	memory   *Memory
	eviction *Eviction

	online  int64
	limit   int64
	leaving string
	closed  bool // no new pods start
	evicted int
	next    int // index of the next pod
}

const podSize = 4 << 10 // size of a pod in MiB

func newLoop(managed bool) *loop {
	l := &loop{stage: newStage(0, 0), online: 20 * gib, limit: 1 << 60}
	if managed {
		l.memory, l.eviction = newMemory(), newEviction()
	}
	return l
}

// second runs one second in which batch work grows by at most grow and online work to at most
// online. It returns how much of the online demand could not be met.
func (l *loop) second(grow, online int64, cachePercent int) (short int64) {
	if l.leaving != "" {
		l.remove(l.leaving)
		l.eviction.Done(l.leaving, EvictCRI, nil, l.Now)
		l.leaving, l.evicted = "", l.evicted+1
	}
	l.grow(grow, cachePercent)
	held, cache := l.held()
	short = max(0, online+held-cache-l.MemoryTotal)
	l.online = online - short
	free := l.MemoryTotal - l.online - held
	if free < 0 { // direct reclaim by online work, or kswapd, drops page cache of batch work
		for i := range l.Containers {
			m := &l.Containers[i].Container.Memory
			take := min(m.Cache, -free)
			m.Cache -= take
			m.Current -= take
			free += take
		}
		_, cache = l.held()
	}
	l.Node.Memory.Free, l.Node.Memory.Available = free, free+cache
	l.tick()
	if l.memory == nil {
		return short
	}
	got, _ := l.memory.Step(&l.View)
	for _, r := range got.Reclaim {
		for i := range l.Containers {
			if m := &l.Containers[i].Container.Memory; l.Containers[i].ID == r.ID {
				gives := min(r.Bytes, m.Cache)
				m.Cache -= gives
				m.Current -= gives
			}
		}
	}
	if held, _ = l.held(); got.BatchLimit > 0 {
		l.limit = max(got.BatchLimit, held)
	}
	var requests []EvictRequest
	if got.Evict != nil {
		requests = append(requests, *got.Evict)
	}
	desired, _ := l.eviction.Step(&l.View, 0, requests)
	l.closed = !desired.Refuse.Until.IsZero()
	if desired.Evict != nil {
		l.leaving = desired.Evict.UID
	}
	return short
}

func (l *loop) held() (held, cache int64) {
	for i := range l.Containers {
		held += l.Containers[i].Container.Memory.Current
		cache += l.Containers[i].Container.Memory.Cache
	}
	return held, cache
}

// grow adds batch work if the batch cgroup and the node have room: new pods, or more memory of
// existing ones if no pod may start.
func (l *loop) grow(most int64, cachePercent int) {
	held, _ := l.held()
	for most = min(most, l.limit-held, l.MemoryTotal-l.online-held); most >= 64*mib; most -= podSize * mib {
		size := min(most/mib, podSize)
		cache := size * int64(cachePercent) / 100
		if n := len(l.Containers); l.closed && n > 0 {
			m := &l.Containers[n-1].Container.Memory
			m.Anon += (size - cache) * mib
			m.Cache += cache * mib
			m.Current += size * mib
			continue
		}
		l.add(actor{uid: fmt.Sprintf("pod-%d", l.next), class: workload.BE, anon: size - cache, cache: cache})
		l.next++
	}
}

// Online work grows from 20 to 60 of 100 GiB at a given rate, on a node that batch work has filled
// as far as it may. With the loop online work gets its memory, without it it doesn't.
func TestMemoryTakeBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rate    int64 // in MiB per second
		cache   int   // percentage of cache in batch work's memory
		evicted int   // maximum
		short   int64 // maximum in bytes
	}{
		{100, 60, 10, 0}, {1000, 60, 8, 0}, {4000, 60, 8, 0}, {20000, 60, 8, 0},
		{100, 0, 20, 0}, {1000, 0, 11, 0}, {4000, 0, 10, 0},
		{10000, 0, 10, 2 * gib}, // a tenth of the node per second, with one eviction in two seconds
	} {
		t.Run(fmt.Sprintf("%d MiB a second, %d%% cache", test.rate, test.cache), func(t *testing.T) {
			t.Parallel()
			demand := func(second int64) int64 { return min(20*gib+second*test.rate*mib, 60*gib) }
			short := func(l *loop) (sum int64) {
				for range 60 {
					sum += l.second(4*gib, 20*gib, test.cache)
				}
				for second := range 40*gib/(test.rate*mib) + 30 {
					sum += l.second(gib, demand(second), test.cache)
				}
				return sum
			}
			if test.cache == 0 && short(newLoop(false)) == 0 {
				t.Error("the demand can be met without the loop: that tests nothing")
			}
			l := newLoop(true)
			missed := short(l)
			held, _ := l.held()
			t.Logf("short of %s, %d evicted, batch keeps %s with a limit of %s", MemoryText(missed), l.evicted, MemoryText(held), MemoryText(l.limit))
			if missed > test.short || l.evicted > test.evicted {
				t.Errorf("online was short of %s, and %d pods were evicted, at most %d", MemoryText(missed), l.evicted, test.evicted)
			}
		})
	}
}

// Under a constant load with noise the limit changes seldom.
func TestMemoryIsCalmUnderNoise(t *testing.T) {
	t.Parallel()
	m := newMemory()
	s := newStage(60*gib, 30*gib, actor{uid: "be", class: workload.BE, anon: 5 << 10, cache: 1 << 10})
	m.Step(&s.View)
	moves, noise := 0, uint32(1)
	for range 3600 {
		noise = noise*1664525 + 1013904223
		s.Node.Memory.Available = 60*gib + int64(noise>>16)%512*mib - 256*mib
		_, decisions := m.Step(s.tick())
		moves += len(decisions)
	}
	if moves > 4 {
		t.Errorf("%d decisions in an hour of %v", moves, time.Second)
	}
}
