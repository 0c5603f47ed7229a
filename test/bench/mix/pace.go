package main

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/bench/mix/load"
)

// The pace of a CPU is the time that paceRounds multiplications take, about 0.1 ms, measured every paceEvery. It tells how fast
// a hypervisor, or the machine's clock, lets the CPU run. What uses caches and memory does not change it.
const (
	paceRounds = 100_000
	paceEvery  = 25 * time.Millisecond
)

// medianPace returns the median pace of all CPUs between two times of load.Now.
func medianPace(begin, end int64) (time.Duration, error) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return 0, err
	}
	var group errgroup.Group
	var mutex sync.Mutex
	var all []time.Duration
	for cpu, left := 0, cpus.Count(); left > 0; cpu++ {
		if !cpus.IsSet(cpu) {
			continue
		}
		left--
		group.Go(func() error {
			took, err := paceOf(cpu, begin, end)
			mutex.Lock()
			defer mutex.Unlock()
			all = append(all, took...)
			return err
		})
	}
	err := group.Wait()
	return load.Quantile(all, 0.5), err
}

func paceOf(cpu int, begin, end int64) (all []time.Duration, err error) {
	return all, load.First(func() error {
		var own unix.CPUSet
		own.Set(cpu)
		if err := unix.SchedSetaffinity(0, &own); err != nil {
			return err
		}
		for at := begin; at < end; {
			load.SleepUntil(at)
			took := multiply()
			all = append(all, took)
			at = max(at+int64(paceEvery), load.Now()+100*int64(took)) // at most 1 % of a CPU, if it is an emulated one
		}
		return nil
	})
}

// multiply returns the time of paceRounds multiplications, each of which needs the result of the one before.
func multiply() time.Duration {
	begin, x := load.Now(), uint64(1)
	for range paceRounds {
		x = x*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
	}
	end := load.Now()
	multiplied.Store(x)
	return time.Duration(end - begin)
}

// multiplied keeps the compiler from leaving out the multiplications.
var multiplied atomic.Uint64

// paces holds the paces of all slices so far, the discarded ones included.
type paces []time.Duration

func (p paces) median() time.Duration { return load.Quantile(slices.Clone(p), 0.5) }

// differs returns whether a pace differs by more than a fraction from the median of all slices so far. A few are not
// enough to tell.
func (p paces) differs(of time.Duration, most float64) bool {
	const few = 5
	return len(p) >= few && math.Abs(float64(of)/float64(p.median())-1) > most
}
