package observe

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
)

const second = time.Second

func start() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// looks is a meter that reads a series of readings.
type looks struct {
	meter Meter
	into  Snapshot
	wall  time.Duration // by how much the wall clock was set
}

func (l *looks) at(mono time.Duration, r Reading) *Snapshot {
	r.Mono, r.Wall = mono, start().Add(mono+l.wall)
	l.meter.Observe(&r, &l.into)
	return &l.into
}

// cpus returns readings of each CPU's busy time. Its remaining time is idle; a CPU with a negative
// number is offline.
func cpus(mono time.Duration, busy ...time.Duration) NodeCPUTimes {
	n := NodeCPUTimes{Mono: mono}
	for _, b := range busy {
		n.CPUs = append(n.CPUs, CPUTime{Online: b >= 0, Busy: max(0, b), Idle: mono - max(0, b)})
	}
	return n
}

func used(id string, mono, usage time.Duration) ContainerReading {
	return ContainerReading{ID: id, CPU: CPUCounters{mono, usage}}
}

func TestNodeCPU(t *testing.T) {
	t.Parallel()
	var l looks
	if s := l.at(second, Reading{CPU: cpus(second, second/2, 0)}); !s.Node.CPU.At.IsZero() || s.CPUs[0].Known {
		t.Errorf("the first look knows rates: %+v", s)
	}
	s := l.at(2*second, Reading{CPU: cpus(2*second, second, 250*time.Millisecond)})
	if c := s.Node.CPU; c.Usage != 750 || c.Interval != second || !c.At.Equal(start().Add(2*second)) {
		t.Errorf("usage is %+v, want 0.75 CPUs over a second", c)
	}
	s = l.at(2*second+time.Millisecond, Reading{CPU: cpus(2*second+time.Millisecond, 2*second, 2*second)})
	if s.Node.CPU.Usage != 750 {
		t.Errorf("a look after 1 ms changed the usage to %v", s.Node.CPU.Usage)
	}
	s = l.at(3*second, Reading{CPU: cpus(3*second, second, -1)}) // CPU 1 goes offline
	if s.CPUs[1].Known || !s.CPUs[0].Known || s.Node.CPU.Usage != 0 {
		t.Errorf("with an offline CPU: %+v", s)
	}
	s = l.at(4*second, Reading{CPU: cpus(4*second, 2*second, second)}) // CPU 1 is online again
	if s.CPUs[1].Known || s.Node.CPU.Usage != 1000 {
		t.Errorf("one look after it is back: %+v", s)
	}
	s = l.at(5*second, Reading{CPU: cpus(5*second, 2*second, 2*second)})
	if !s.CPUs[1].Known || s.Node.CPU.Usage != 1000 {
		t.Errorf("two looks after it is back: %+v", s)
	}
	if s = l.at(65*second, Reading{CPU: cpus(65*second, 62*second, 62*second)}); !s.Node.CPU.At.IsZero() {
		t.Errorf("a mean over a minute counts as now: %+v", s.Node.CPU)
	}
	if s = l.at(66*second, Reading{}); !s.Node.CPU.At.IsZero() {
		t.Errorf("known without reading: %+v", s.Node.CPU)
	}
}

// A virtual machine that was paused has counted no tick since the last reading. That is no loss of what was known.
func TestCountersThatStandStill(t *testing.T) {
	t.Parallel()
	const tick = 100 * time.Millisecond
	var l looks
	l.at(tick, Reading{CPU: cpus(tick, 0, 0)})
	still := cpus(2*tick, tick/2, 0)
	l.at(2*tick, Reading{CPU: still})
	still.Mono = 3 * tick
	if c := l.at(3*tick, Reading{CPU: still}).Node.CPU; c.Usage != 500 || !c.At.Equal(start().Add(2*tick)) {
		t.Errorf("after a tick in which nothing was counted: %+v, want what was known before", c)
	}
	if c := l.at(4*tick, Reading{CPU: cpus(4*tick, tick, tick)}).Node.CPU; c.Usage != 750 || c.Interval != 2*tick {
		t.Errorf("%+v, want 0.75 CPUs over two ticks", c)
	}
	still = cpus(200*tick, tick, tick)
	still.CPUs = cpus(4*tick, tick, tick).CPUs
	if c := l.at(200*tick, Reading{CPU: still}).Node.CPU; !c.At.IsZero() {
		t.Errorf("known although nothing was counted for 20 s: %+v", c)
	}
}

func TestIdleTimeThatGoesBackIsNoBusyTime(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		to          CPUTime
		busy, steal float64
		known       bool
	}{
		{"idle", CPUTime{true, 10 * second, 11 * second, 10 * second, 10 * second}, 0, 0, true},
		{"half", CPUTime{true, 11 * second, 11 * second, 10 * second, 10 * second}, 0.5, 0, true},
		{"waiting for disks", CPUTime{true, 10 * second, 10 * second, 11 * second, 10 * second}, 0, 0, true},
		{"I/O wait back", CPUTime{true, 11 * second, 11 * second, 9 * second, 10 * second}, 0.5, 0, true},
		{"idle back", CPUTime{true, 11 * second, 5 * second, 10 * second, 10 * second}, 1, 0, true},
		{"stolen", CPUTime{true, 11 * second, 10 * second, 10 * second, 11 * second}, 0.5, 0.5, true},
		{"busy back", CPUTime{true, 9 * second, 11 * second, 10 * second, 10 * second}, 0, 0, false},
		{"stands still", CPUTime{true, 10 * second, 10 * second, 10 * second, 10 * second}, 0, 0, false},
	}
	for _, tt := range tests {
		before := CPUTime{true, 10 * second, 10 * second, 10 * second, 10 * second}
		if busy, steal, known := share(&before, &tt.to); busy != tt.busy || steal != tt.steal || known != tt.known {
			t.Errorf("%s: %v, %v, %v", tt.name, busy, steal, known)
		}
	}
}

func TestContainerCPU(t *testing.T) {
	t.Parallel()
	var l looks
	look := func(mono time.Duration, containers ...ContainerReading) []Container {
		return l.at(mono, Reading{CPU: cpus(mono, 0, 0), Containers: containers}).Containers
	}
	if c := look(second, used("a", second, 5*second)); !c[0].CPU.At.IsZero() {
		t.Errorf("the first look knows %+v", c[0].CPU)
	}
	if c := look(2*second, used("a", 2*second, 5500*time.Millisecond)); c[0].CPU.Usage != 500 || c[0].CPU.Interval != second {
		t.Errorf("usage is %+v, want 0.5", c[0].CPU)
	}
	if c := look(2*second, used("a", 2*second, 5500*time.Millisecond)); c[0].CPU.Usage != 500 {
		t.Errorf("no time later it is %+v", c[0].CPU)
	}
	// Between two readings of the container, its values stay, while others are read.
	if c := look(2500*time.Millisecond, ContainerReading{ID: "b"}, ContainerReading{ID: "a"}); c[1].ID != "a" || c[1].CPU.Usage != 500 || !c[1].CPU.At.Equal(start().Add(2*second)) {
		t.Errorf("without a reading it is %+v", c)
	}
	if c := look(3*second, used("a", 3*second, 60*second)); c[0].CPU.Usage != 2000 || len(c) != 1 {
		t.Errorf("usage is %+v, want all that the machine has", c)
	}
	if c := look(4*second, used("a", 4*second, second)); !c[0].CPU.At.IsZero() || c[0].CPU.Usage != 0 {
		t.Errorf("after a restart it is %+v, want unknown", c[0].CPU)
	}
	if c := look(5*second, used("a", 5*second, 2*second)); c[0].CPU.Usage != 1000 {
		t.Errorf("a look after the restart it is %+v", c[0].CPU)
	}
	look(6 * second)
	if len(l.meter.byID) != 0 {
		t.Error("a container that is gone is remembered")
	}
	if c := look(7*second, used("a", 7*second, 3*second)); !c[0].CPU.At.IsZero() {
		t.Errorf("another container with its ID is %+v", c[0].CPU)
	}
}

func TestAllParts(t *testing.T) {
	t.Parallel()
	l3s := func(n int64) []L3 { return []L3{{ID: 1, OccupancyBytes: 4096, TotalBytes: -1, LocalBytes: 500 * n}} }
	reading := func(mono time.Duration, n int64) Reading {
		k := time.Duration(n)
		psi := PressureTotals{mono, Stall{k * second / 10, 0.7}, Stall{k * second / 5, 0}, Stall{k * second / 20, 0}, Stall{k * second / 2, 0}, Stall{0, 0}}
		return Reading{
			Pressure: psi,
			Memory:   MemoryCounters{mono, 100, 50, 20, 30, 40, 5, 0, 7 * n, 90, 80, 4096 * n, true, 3, []NUMACounters{{60, 10, 20, 3 * n}, {}}},
			Containers: []ContainerReading{{
				ID: "a", Pressure: psi,
				Throttling: ThrottlingCounters{mono, 10 * n, 5 * n, k * second},
				RunDelay:   DelayCounter{mono, 3 * k * second},
				Memory:     ContainerMemoryCounters{mono, 100, 60, 10, 20, 4 * n, 2 * n, 1},
				Swap:       SwapCounters{mono, 8, 9},
				IO:         IOCounters{mono, 1000 * n, 2000 * n},
				Cache:      CacheCounters{mono, 4096, l3s(n)},
			}},
		}
	}
	var l looks
	s := l.at(second, reading(second, 1))
	if s.Node.Pressure.CPU != 0.7 || s.Node.Memory.Available != 50 || s.Containers[0].Memory.WorkingSet != 80 {
		t.Errorf("the first look: %+v", s)
	}
	if c := s.Containers[0]; !c.RunDelay.At.IsZero() || !c.IO.At.IsZero() || !c.CPU.StatAt.IsZero() || c.Cache.Bandwidth != 0 {
		t.Errorf("the first look knows rates: %+v", c)
	}
	s = l.at(2*second, reading(2*second, 2))
	at := start().Add(2 * second)
	psi := Pressure{at, 0.1, 0.2, 0.05, 0.5, 0}
	want := Container{
		ID: "a", Pressure: psi,
		CPU:      ContainerCPU{StatAt: at, Periods: 10, Throttled: 5, ThrottledTime: second},
		RunDelay: RunDelay{at, 3}, Memory: ContainerMemory{at, 100, 80, 60, 30, 4, 2, 1},
		Swap: ContainerSwap{at, 8, 9}, IO: ContainerIO{at, 1000, 2000}, Cache: Cache{at, 4096, 500, l3s(2)},
	}
	if !reflect.DeepEqual(s.Containers[0], want) || s.Node.Pressure != psi {
		t.Errorf("got  %+v\nwant %+v", s.Containers[0], want)
	}
	mem := s.Node.Memory
	if mem.Direct != 7 || !slices.Equal(mem.Nodes, []NUMANode{{60, 10, 20, 3}, {}}) || mem.Low != 5 || mem.Cache != 40 || mem.SwapTotal != 90 || mem.SwapFree != 80 || mem.SwapWrites != 4096 || !mem.SwapInMemory || mem.SwapHeld != 3 {
		t.Errorf("memory is %+v", mem)
	}
	// All counters decrease.
	s = l.at(3*second, reading(3*second, 0))
	if c := s.Containers[0]; !c.Pressure.At.IsZero() || !c.CPU.StatAt.IsZero() || !c.RunDelay.At.IsZero() || !c.IO.At.IsZero() || c.Memory.Refaults != 0 || c.Cache.Bandwidth != 0 || c.Memory.Current != 100 {
		t.Errorf("after a reset: %+v", c)
	}
	if s = l.at(4*second, reading(4*second, 1)); s.Containers[0].RunDelay.Waiting != 3 {
		t.Errorf("a look after the reset: %+v", s.Containers[0])
	}
}

// TestCountersThatCannotBeRead checks that the memory bandwidth stays as it was while the kernel can't
// read some cache's counter, and that it is never computed from other counters than before.
func TestCountersThatCannotBeRead(t *testing.T) {
	t.Parallel()
	const no = -1
	one := func(id int, total, local int64) L3 { return L3{ID: id, TotalBytes: total, LocalBytes: local} }
	both := func(total0, total1 int64) []L3 { return []L3{one(0, total0, no), one(1, total1, no)} }
	for name, c := range map[string]struct {
		readings [][]L3 // one each second
		want     []float64
	}{
		"once":                   {[][]L3{both(1e12, 1e12), both(1e12+100, 1e12+100), both(no, 1e12+200), both(1e12+500, 1e12+500), both(1e12+600, 1e12+500)}, []float64{0, 200, 200, 400, 100}},
		"at first":               {[][]L3{both(no, 1e12), both(1e12, 1e12), both(1e12+100, 1e12)}, []float64{0, 0, 100}},
		"never":                  {[][]L3{both(no, no), both(no, no)}, []float64{0, 0}},
		"back":                   {[][]L3{both(1000, 1000), both(2000, 10), both(2000, 20)}, []float64{0, 0, 10}},
		"another cache":          {[][]L3{both(0, 0), both(10, 10), {one(0, 30, no)}, {one(0, 31, no)}, both(32, 1e12), both(33, 1e12)}, []float64{0, 20, 0, 1, 0, 1}},
		"local is no substitute": {[][]L3{{one(0, 1000, 300)}, {one(0, 1200, 400)}, {one(0, no, 450)}, {one(0, 1400, 500)}}, []float64{0, 200, 200, 100}},
		"local alone":            {[][]L3{{one(0, no, 300)}, {one(0, no, 400)}}, []float64{0, 100}},
	} {
		var l looks
		for i, caches := range c.readings {
			mono := time.Duration(i+1) * second
			s := l.at(mono, Reading{Containers: []ContainerReading{{ID: "a", Cache: CacheCounters{mono, int64(i), caches}}}})
			if got := s.Containers[0].Cache; got.Bandwidth != c.want[i] || got.Occupancy != int64(i) || !got.At.Equal(s.Now) {
				t.Errorf("%s, reading %d: %+v, want a bandwidth of %v", name, i, got, c.want[i])
			}
		}
	}
	var l looks
	for i, want := range []float64{0, 100, 100, 0} {
		mono := time.Duration(i)*45*second + second
		caches := []L3{one(0, int64(i)*4500, no)}
		if i > 1 {
			caches[0].TotalBytes = no
		}
		if i == 3 {
			mono += 2 * second
		}
		if s := l.at(mono, Reading{Containers: []ContainerReading{{ID: "a", Cache: CacheCounters{mono, 1, caches}}}}); s.Containers[0].Cache.Bandwidth != want {
			t.Errorf("for good, reading %d: %+v, want a bandwidth of %v", i, s.Containers[0].Cache, want)
		}
	}
}

func TestTheWallClockIsSet(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		var l looks
		l.at(second, Reading{CPU: cpus(second, 0)})
		l.at(2*second, Reading{CPU: cpus(2*second, second/2)})
		l.wall = by
		s := l.at(3*second, Reading{})
		if age := s.Now.Sub(s.Node.CPU.At); age != second {
			t.Errorf("set by %v, the usage is %v old, want 1s", by, age)
		}
		if s = l.at(4*second, Reading{CPU: cpus(4*second, 1500*time.Millisecond)}); s.Node.CPU.Usage != 500 {
			t.Errorf("set by %v, the usage is %v, want 0.5", by, s.Node.CPU.Usage)
		}
	}
}

func TestReadingsOfThousandContainersAllocateNothing(t *testing.T) {
	l := looks{}
	r := Reading{CPU: cpus(second, make([]time.Duration, 64)...), Containers: make([]ContainerReading, 1000)}
	for i := range r.Containers {
		r.Containers[i].ID = fmt.Sprint("container-", i)
	}
	mono := second
	look := func() {
		mono += second
		r.CPU.Mono, r.Pressure.Mono, r.Memory.Mono = mono, mono, mono
		for i := range r.Containers {
			c := &r.Containers[i]
			c.CPU = CPUCounters{mono, mono / 2}
			c.Memory.Mono, c.IO.Mono = mono, mono
		}
		l.at(mono, r)
	}
	look()
	if n := testing.AllocsPerRun(10, look); n != 0 {
		t.Errorf("a look allocates %v times", n)
	}
	if got := l.into.Containers[999].CPU.Usage; got != 500 {
		t.Errorf("usage is %v", got)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	var d Delays
	look := func(threads ...int) time.Duration { // pairs of ID and seconds
		d.Begin()
		for i := 0; i < len(threads); i += 2 {
			d.Add(threads[i], time.Duration(threads[i+1])*second)
		}
		return d.End()
	}
	for i, tt := range []struct {
		threads []int
		want    time.Duration
	}{
		{[]int{10, 5, 11, 1}, 0},
		{[]int{10, 6, 11, 1}, 1},
		{[]int{10, 6, 12, 3, 11, 2}, 5}, // thread 12 is new
		{[]int{11, 4}, 7},               // the other threads ended
		{[]int{11, 1}, 8},               // another thread has the same ID
		{nil, 8},
		{[]int{11, 1}, 9},
	} {
		if got := look(tt.threads...); got != tt.want*second {
			t.Errorf("look %d: %v, want %ds", i, got, tt.want)
		}
	}
	d.Drop()
	if first, then := look(11, 100), look(11, 101); first != 0 || then != second {
		t.Errorf("after a look that missed threads: %v, %v", first, then)
	}
}

func TestParsePressure(t *testing.T) {
	t.Parallel()
	some, full, ok := ParsePressure([]byte("some avg10=12.34 avg60=0.00 avg300=0.00 total=2459482295\nfull avg10=0.07 avg60=0.00 avg300=0.00 total=5\n"))
	if !ok || some.Total != 2459482295*time.Microsecond || math.Abs(some.Avg10-0.1234) > 1e-9 || full.Total != 5*time.Microsecond || math.Abs(full.Avg10-0.0007) > 1e-9 {
		t.Errorf("got %+v, %+v, %v", some, full, ok)
	}
	for _, text := range []string{"", "some", "some avg10=1", "some total=", "full total=1"} {
		if _, _, ok := ParsePressure([]byte(text)); ok {
			t.Errorf("%q is pressure", text)
		}
	}
}

func FuzzParsePressure(f *testing.F) {
	f.Add([]byte("some avg10=1.50 avg60=0.70 avg300=0.10 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=123\n"))
	f.Add([]byte("some avg10=999999999999999999999. total=99999999999999999999"))
	f.Fuzz(func(t *testing.T, text []byte) {
		some, full, _ := ParsePressure(text)
		for _, s := range []Stall{some, full} {
			if s.Total < 0 || !(s.Avg10 >= 0 && s.Avg10 <= 1) {
				t.Errorf("%q is %+v", text, s)
			}
		}
	})
}
