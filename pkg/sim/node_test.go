package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

const step = 100 * time.Millisecond

func testNode(t interface{ Fatal(...any) }, machine string) *simNode {
	m, err := synth.Machine(machine)
	if err != nil {
		t.Fatal(err)
	}
	s := Scenario{}
	s.defaults()
	return newNode(m, s.Hardware, step)
}

// start starts a container in a cgroup of its own.
func (n *simNode) start(name string, p Pod, values map[knobs.Knob]knobs.Value) *container {
	p.Name = name
	p.Memory.Low, p.Memory.Speed = max(p.Memory.Low, 1), max(p.Memory.Speed, 1<<30)
	path := "/" + name
	n.mkdir(path)
	n.set(path, values)
	n.run(path, len(n.containers)+1)
	c := &container{Pod: &p, id: name, path: path, pod: &instance{scale: 1}, load: newSource(p.Load, 1, name), speed: 1}
	n.containers = append(n.containers, c)
	return c
}

func hungry(cpus float64) Pod { return Pod{Load: Load{Curve: Constant, CPU: Cores(cpus)}} }

// CPU time is conserved: whatever the cgroups say, no container uses more than its quota and
// burst, its CPUs or its demand allow.
func TestNodeConservesCPUTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := testNode(t, rapid.SampledFrom([]string{"4 cores", "4 cores 2 threads", "2 packages 4 cores 2 threads"}).Draw(t, "machine"))
		cpus := n.machine.Online.Size()
		const steps = 20
		quotas := map[*container]float64{}
		for i := range rapid.IntRange(1, 8).Draw(t, "containers") {
			values := map[knobs.Knob]knobs.Value{knobs.Weight: knobs.Shares(rapid.IntRange(2, 10000).Draw(t, "shares"))}
			if rapid.Bool().Draw(t, "set") {
				first := rapid.IntRange(0, cpus-1).Draw(t, "first")
				values[knobs.CPUs] = knobs.CPUSet(cpuset.Range(first, rapid.IntRange(first, cpus-1).Draw(t, "last")))
			}
			quota := math.Inf(1)
			if rapid.Bool().Draw(t, "limited") {
				q := knobs.CPUQuota{Quota: time.Duration(rapid.IntRange(1, 500).Draw(t, "ms")) * time.Millisecond, Period: step}
				burst := time.Duration(rapid.IntRange(0, int(q.Quota)).Draw(t, "burst"))
				values[knobs.Quota], values[knobs.Burst] = q, knobs.CPUBurst(burst)
				quota = q.Quota.Seconds()*steps + burst.Seconds()
			}
			if rapid.Bool().Draw(t, "idle") {
				values[knobs.Idle] = knobs.Number(1)
			}
			p := Pod{Load: Load{Curve: Constant, CPU: Cores(rapid.Float64Range(0, 20).Draw(t, "cpus")), Noise: 0.5}}
			if rapid.Bool().Draw(t, "service") {
				p.Service = Service{Time: time.Millisecond, SLO: 10 * time.Millisecond}
			}
			quotas[n.start(fmt.Sprint("c", i), p, values)] = quota
		}
		used := map[*container]float64{}
		for i := range steps {
			n.advance(time.Duration(i)*step, 0)
			sum := 0.0
			for _, c := range n.containers {
				set := n.effective(n.Kernel.groups[c.path], knobs.CPUs)
				if c.got > float64(set.Size())+slack || c.got > c.demand+slack || c.got < 0 {
					t.Fatalf("%s used %g CPUs of the %d in %s, and wanted %g", c.id, c.got, set.Size(), set, c.demand)
				}
				used[c] += c.got * step.Seconds()
				sum += c.got
			}
			if sum > float64(cpus)+slack {
				t.Fatalf("%g of %d CPUs used", sum, cpus)
			}
		}
		for c, seconds := range used {
			if seconds > quotas[c]+slack {
				t.Fatalf("%s used %g s, its quota and burst are %g", c.id, seconds, quotas[c])
			}
		}
	})
}

// Work is conserved: what arrives is done, waits, or was given up.
func TestNodeConservesWork(t *testing.T) {
	t.Parallel()
	n := testNode(t, "2 cores 2 threads")
	service := Pod{Load: Load{Curve: Sine, CPU: 5, Noise: 0.3, Peaks: []Hour{0}}, Service: Service{Time: time.Millisecond, SLO: time.Second}}
	c := n.start("a", service, nil)
	came, done, lost := 0.0, 0.0, 0.0
	for i := range 3000 {
		n.advance(time.Duration(i)*step, time.Duration(i)*time.Minute)
		came += c.offered * step.Seconds()
		done += c.done
		lost += c.lost
	}
	if rest := came - done - lost - c.backlog; math.Abs(rest) > 1e-6*came {
		t.Errorf("%g s of work came; %g done, %g given up, %g wait: %g are missing", came, done, lost, c.backlog, rest)
	}
}

// A busy sibling slows a thread down, and idle cores are filled first.
func TestSiblings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ load, want float64 }{{2, 1}, {4, 1}, {8, 0.62}, {6, 1 - 0.38*4/6}} {
		n := testNode(t, "4 cores 2 threads")
		c := n.start("a", hungry(test.load), nil)
		for i := range 3 {
			n.advance(time.Duration(i)*step, 0)
		}
		if math.Abs(c.speed-test.want) > 1e-9 {
			t.Errorf("%g of 8 threads busy: speed %g, want %g", test.load, c.speed, test.want)
		}
	}
	n := testNode(t, "4 cores 2 threads") // the siblings are CPUs 0 and 4
	a := n.start("a", hungry(4), map[knobs.Knob]knobs.Value{knobs.CPUs: set("0-3")})
	n.start("b", hungry(2), map[knobs.Knob]knobs.Value{knobs.CPUs: set("4-7")})
	for i := range 3 {
		n.advance(time.Duration(i)*step, 0)
	}
	if want := 1 - 0.38/2; math.Abs(a.speed-want) > 1e-9 {
		t.Errorf("half of the siblings busy in another set: speed %g, want %g", a.speed, want)
	}
}

func TestMemoryTraffic(t *testing.T) {
	t.Parallel()
	n := testNode(t, "4 cores")
	n.hardware.Bandwidth = 10e9
	p := hungry(4)
	p.Traffic, p.Sensitivity = 2e9, 1
	c := n.start("a", p, nil)
	calm := n.start("b", Pod{Load: Load{Curve: Constant, CPU: 0.001}}, nil)
	for i := range 50 {
		n.advance(time.Duration(i)*step, 0)
	}
	if c.speed > 0.8 || c.speed < 0.5 || calm.speed != 1 {
		t.Errorf("at 80 %% of the bandwidth the sensitive one has speed %g, the other %g", c.speed, calm.speed)
	}
}

// The response time grows with load and blocking, and falls with servers and speed.
func TestLatencyIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := queue{
			service: time.Duration(rapid.IntRange(1, 100).Draw(t, "ms")) * time.Millisecond,
			speed:   rapid.Float64Range(0.3, 1).Draw(t, "speed"), servers: rapid.Float64Range(0.1, 64).Draw(t, "servers"),
			blocked: rapid.Float64Range(0, 0.9).Draw(t, "blocked"), backlog: rapid.Float64Range(0, 1).Draw(t, "backlog"),
		}
		q.offered = rapid.Float64Range(0, 0.9).Draw(t, "load") * q.servers * q.speed
		base := q.p99()
		if floor := math.Log(100) * q.service.Seconds(); base < floor {
			t.Fatalf("%g s is below %g, what requests take alone", base, floor)
		}
		for name, worse := range map[string]func(*queue){
			"load":    func(q *queue) { q.offered *= 1.05 },
			"blocked": func(q *queue) { q.blocked += 0.1 },
			"backlog": func(q *queue) { q.backlog += 0.1 },
			"servers": func(q *queue) { q.servers *= 0.95 },
			"speed":   func(q *queue) { q.speed *= 0.95 },
		} {
			w := q
			worse(&w)
			if got := w.p99(); got < base*(1-1e-9) {
				t.Fatalf("with worse %s the service answers in %g s instead of %g", name, got, base)
			}
		}
	})
}

func TestMemory(t *testing.T) {
	t.Parallel()
	const gi = 1 << 30
	memory := func(anon, cache Bytes) Pod {
		p := hungry(0.1)
		p.Memory = Memory{Anon: anon, Cache: cache}
		return p
	}
	for _, test := range []struct {
		name          string
		pods          []Pod
		first         map[knobs.Knob]knobs.Value
		killed        bool
		direct, grown bool // a container met direct reclaim; the first container's heap is complete
	}{
		{"all fits", []Pod{memory(2*gi, 2*gi), memory(gi, 0)}, nil, false, false, true},
		{"page cache gives way", []Pod{memory(2*gi, 0), memory(0, 100*gi)}, nil, false, false, true},
		{"over its limit", []Pod{memory(2*gi, 0)}, map[knobs.Knob]knobs.Value{knobs.MemoryMax: knobs.Bytes(gi)}, true, false, false},
		{"its own cache gives way first", []Pod{memory(gi/2, 4*gi)}, map[knobs.Knob]knobs.Value{knobs.MemoryMax: knobs.Bytes(gi)}, false, false, true},
		{"throttled above high", []Pod{memory(2*gi, 0)}, map[knobs.Knob]knobs.Value{knobs.MemoryHigh: knobs.Bytes(gi)}, false, false, false},
		{"more heap than there is", []Pod{memory(5*gi, 0), memory(5*gi, 0)}, nil, true, true, false},
	} {
		n := testNode(t, "4 cores memory 8G")
		first := n.start("a", test.pods[0], test.first)
		for _, p := range test.pods[1:] {
			n.start("b", p, nil)
		}
		killed, direct := false, false
		for i := range 200 {
			killed = len(n.advance(time.Duration(i)*step, 0)) > 0 || killed
			direct = direct || n.memory.direct > 0
			sum := n.memory.free + n.memory.system
			for _, c := range n.containers {
				sum += c.held.all()
				if c.held.anon < 0 || c.held.cache < 0 {
					t.Fatalf("%s: a container holds %+v", test.name, c.held)
				}
			}
			if sum != n.memory.total {
				t.Fatalf("%s: %d bytes of %d", test.name, sum, n.memory.total)
			}
			if killed {
				break
			}
		}
		grown := first.held.anon == int64(first.Memory.Anon)
		if killed != test.killed || direct && !test.direct || grown != test.grown && !killed {
			t.Errorf("%s: killed %t, direct reclaim %t, has its heap %t (%d)", test.name, killed, direct, grown, first.held.anon)
		}
	}
}

// A limit that falls below what is held costs page cache and waiting, and no container its life while
// page cache is left.
func TestLimitFallsBelowPageCache(t *testing.T) {
	t.Parallel()
	const gi = 1 << 30
	n := testNode(t, "4 cores memory 8G")
	p := hungry(0.1)
	p.Memory = Memory{Anon: gi, Cache: 4 * gi, Leak: 100 * gi}
	c := n.start("a", p, map[knobs.Knob]knobs.Value{knobs.MemoryMax: knobs.Bytes(5 * gi)})
	advance := func(from, to time.Duration) (killed bool) {
		for at := from; at < to; at += step {
			killed = len(n.advance(at, 0)) > 0 || killed
		}
		return killed
	}
	if advance(0, 20*time.Second) || c.held.cache < 2*gi {
		t.Fatalf("it holds %+v", c.held)
	}
	n.set(c.path, map[knobs.Knob]knobs.Value{knobs.MemoryMax: knobs.Bytes(2 * gi)})
	if advance(20*time.Second, 25*time.Second) || c.held.all() > 2*gi {
		t.Errorf("with page cache it was killed, or holds %+v", c.held)
	}
	if !advance(25*time.Second, time.Minute) {
		t.Errorf("without page cache it goes on: %+v", c.held)
	}
}
