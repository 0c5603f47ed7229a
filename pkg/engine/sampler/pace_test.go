package sampler

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestIdleContainersRest checks that the interval for an idle container grows to four seconds, and
// returns to one second once it is found to do something.
func TestIdleContainersRest(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(1)
		used := int64(0)
		reads := func(seconds int, of time.Duration) (ages []time.Duration) {
			for range seconds {
				used += int64(of)
				b.kernel.Count("/pods/c0", fakekernel.Counters{CPU: used})
				b.sample(time.Second, targets)
				c := b.into.Containers[0].CPU
				if ages = append(ages, b.into.Now.Sub(c.At)/time.Second); b.into.Now.Sub(c.At) > 3*c.Interval && !c.At.IsZero() {
					b.t.Errorf("%v old after an interval of %v", b.into.Now.Sub(c.At), c.Interval)
				}
			}
			return ages
		}
		reads(2, time.Second)
		if ages := reads(11, time.Millisecond); !slices.Equal(ages, []time.Duration{0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 0}) {
			b.t.Errorf("idle, its figures were so many seconds old: %v", ages)
		}
		if ages := reads(6, time.Second); !slices.Equal(ages, []time.Duration{1, 2, 3, 0, 0, 0}) {
			b.t.Errorf("busy again: %v", ages)
		}
		reads(11, time.Millisecond)
		b.Refresh()
		if ages := reads(1, 0); ages[0] != 0 {
			b.t.Errorf("asked for, it is %v s old", ages[0])
		}
	})
}

// TestLongestInterval checks that at the longest control.interval that the configuration allows, an
// idle node is measured well before the failsafe acts, and an idle container's CPU usage is known.
func TestLongestInterval(t *testing.T) {
	for _, every := range []time.Duration{50 * time.Millisecond, 790 * time.Millisecond, time.Second} {
		t.Run(every.String(), func(t *testing.T) { in(t, func(b *bed) { b.idleAt(every, 2*time.Second) }) })
	}
}

func (b *bed) idleAt(fast, all time.Duration) {
	b.every.Fast, b.every.All = fast, all
	targets := b.containers(1)
	for began := time.Now(); time.Since(began) < time.Minute; {
		if b.sample(b.next, targets); b.next > failsafe.Silence/2 {
			b.t.Fatalf("the next measurement is in %v", b.next)
		}
		if time.Since(began) > 5*time.Second && b.into.Containers[0].CPU.At.IsZero() {
			b.t.Fatalf("after %v, the usage of an idle container is unknown", time.Since(began))
		}
	}
}

func TestTheRestIsSpread(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(200)
		targets[0].Fast = true
		most := 0
		for i := range 400 {
			before := b.reads.slow
			if err := b.sample(fast, targets); err != nil {
				b.t.Fatal(err)
			}
			if i >= 200 {
				most = max(most, b.reads.slow-before)
			}
		}
		if most > 5 || b.reads.slow < 700 || b.reads.slow > 800 {
			b.t.Errorf("in 40 s %d looks at 200 containers, at most %d at once", b.reads.slow, most)
		}
		for _, c := range b.into.Containers {
			if age := b.into.Now.Sub(c.Memory.At); age > 10*time.Second+5*fast {
				b.t.Fatalf("the memory of %s is %v old", c.ID, age)
			}
		}
		before := b.reads.slow
		b.Refresh()
		if b.sample(fast, targets); b.reads.slow != before+200 {
			b.t.Errorf("asked for, %d containers are looked at", b.reads.slow-before)
		}
	})
}

// TestWaitingIsReadClosely checks that the pressure, the run delay and the cache of a target whose waiting is
// to be known are read each second, but not twice in a sample.
func TestWaitingIsReadClosely(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(3)
		for i := range targets {
			targets[i].LS, targets[i].Fast = true, true
			b.kernel.Count(targets[i].Path, fakekernel.Counters{Threads: []int{10}})
		}
		b.put("proc/10/schedstat", "5 6 7\n")
		targets[1].Waiting = true
		b.rdt = watched{"c1": {{OccupancyBytes: 1}}}
		b.sample(fast, targets)
		b.reads.stalls = map[string]int{}
		for i := range 300 {
			b.sample(fast, targets)
			if c := &b.into.Containers[1]; i >= 20 && (b.into.Now.Sub(c.Pressure.At) >= time.Second || b.into.Now.Sub(c.RunDelay.At) >= time.Second || b.into.Now.Sub(c.Cache.At) >= time.Second) {
				b.t.Fatalf("after %d samples the figures are of %v, %v and %v, now is %v", i, c.Pressure.At, c.RunDelay.At, c.Cache.At, b.into.Now)
			}
		}
		if n := b.reads.stalls["/pods/c1"]; n < 29 || n > 33 {
			b.t.Errorf("the pressure was read %d times in 30 s, want 30, and 3 at most for the usual pace", n)
		}
		if n := b.reads.stalls["/pods/c0"]; n < 2 || n > 4 {
			b.t.Errorf("that of another target was read %d times in 30 s, want 3", n)
		}
	})
}

func TestMemoryIsWatchedCloselyWhereItRunsShort(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(4)
		targets[0].Fast = true
		b.sample(fast, targets)
		b.put("proc/pressure/memory", "some avg10=7.00 avg60=0.00 avg300=0.00 total=0\n")
		before := b.reads.slow
		for range 50 {
			b.sample(fast, targets)
		}
		if n := b.reads.slow - before; n < 4 || n > 8 {
			b.t.Errorf("%d looks at 4 containers in 5 s", n)
		}
	})
}

func TestAnIdleNodeIsLookedAtSeldom(t *testing.T) {
	in(t, func(b *bed) {
		targets := b.containers(1)
		var waits []time.Duration
		look := func(after time.Duration, busy int) {
			time.Sleep(after)
			b.busy(busy)
			b.sample(0, targets)
			waits = append(waits, b.next)
		}
		look(fast, 0)
		for range 5 {
			look(b.next, 0)
		}
		look(b.next, 60) // it is busy again
		if want := []time.Duration{fast, 2 * fast, 4 * fast, 8 * fast, time.Second, time.Second, fast}; !slices.Equal(waits, want) {
			b.t.Errorf("waits are %v, want %v", waits, want)
		}
		if b.into.Node.CPU.Usage < workload.MilliCPU(2000) {
			b.t.Errorf("usage is %v", b.into.Node.CPU.Usage)
		}
		targets = slices.Clone(targets)
		targets[0].Fast = true
		look(5*time.Second, 60)
		if look(fast, 60); b.next != fast {
			b.t.Errorf("with a fast target it waits %v", b.next)
		}
	})
}
