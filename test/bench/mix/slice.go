package main

import (
	"context"
	"errors"
	goruntime "runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/bench/mix/waits"
	"github.com/sluice-dev/sluice/test/probe/wire"
	"github.com/sluice-dev/sluice/test/runtime"
)

// slice is one measurement: a load on the service while a hog runs.
type slice struct {
	phases   []load.Phase  // in sequence; the first one is not counted
	seed     uint64        // seed of the arrivals
	hog      *runtime.Pod  // nil for none
	patience time.Duration // time to wait for answers at the end
	keep     uint32        // KiB of memory that each request allocates and keeps
}

// outcome is the result of a slice.
type outcome struct {
	latency, late, wait []time.Duration
	windows             []time.Duration // p99 of each window in turn
	lost                int
	usage               usage
	pace                time.Duration // see medianPace
	stalled             float64       // fraction of the time in which a thread of the service waited for a CPU
	waits               waits.Waits
}

// settleTime returns the duration of the first phase.
func (s slice) settleTime() time.Duration { return s.phases[0].For }

func (s slice) whole() time.Duration {
	var sum time.Duration
	for _, p := range s.phases {
		sum += p.For
	}
	return sum
}

// measure runs a slice in the node's present setting.
func (b *bed) measure(ctx context.Context, s slice) (o outcome, err error) {
	files, err := b.counters(s.hog)
	if err != nil {
		return o, err
	}
	unix.Sync() // what earlier slices left to write must not go to the disk in this one
	var first, last sample
	due, result, err := b.send(ctx, s, func(begin int64) (err error) {
		from, until := begin+int64(s.settleTime()), begin+int64(s.whole())
		var paced errgroup.Group
		paced.Go(func() (err error) {
			o.pace, err = medianPace(from, until)
			return err
		})
		load.SleepUntil(from)
		if err := b.tracer.start(b.service, s.hog); err != nil {
			return err
		}
		if first, err = files.read(); err != nil {
			return err
		}
		load.SleepUntil(until)
		last, err = files.read()
		return errors.Join(err, paced.Wait(), b.tracer.stop())
	})
	if err != nil {
		return o, err
	}
	if o.waits, err = b.tracer.read(); err != nil {
		return o, err
	}
	o.usage = between(first, last, b.cpus)
	o.stalled = float64(last.stalled-first.stalled) / float64(last.at-first.at)
	o.lost = result.Lost
	for i, at := range due {
		if at >= s.settleTime() {
			o.latency = append(o.latency, result.Latency[i])
			o.late = append(o.late, result.Late[i])
			if result.Wait != nil {
				o.wait = append(o.wait, result.Wait[i])
			}
		}
	}
	o.windows = windows(due, result.Latency, s.settleTime())
	return o, nil
}

// window is the time between two looks of Sluice at a service's objective.
const window = 5 * time.Second

// windows returns the 99th percentile of the requests that were due in each window from that time on.
func windows(due, latency []time.Duration, from time.Duration) (p99s []time.Duration) {
	var in []time.Duration
	for i, at := range due {
		if at < from {
			continue
		}
		for ; at >= from+window; from += window {
			p99s, in = append(p99s, load.Quantile(in, 0.99)), nil
		}
		in = append(in, latency[i])
	}
	if len(in) > 0 {
		p99s = append(p99s, load.Quantile(in, 0.99))
	}
	return p99s
}

// send sends the slice's requests while its hog runs. On a thread of load.First, it calls
// meanwhile with the time at which the schedule begins.
func (b *bed) send(ctx context.Context, s slice, meanwhile func(begin int64) error) (due []time.Duration, result *load.Result, err error) {
	client, err := b.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if s.hog != nil {
		if err := s.hog.Freeze(false); err != nil {
			return nil, nil, err
		}
		defer func() { err = errors.Join(err, s.hog.Freeze(true)) }()
	}
	goruntime.GC() // the garbage collector is off otherwise, see main
	due = load.Schedule(s.phases, s.seed)
	begin := load.Now() + int64(20*time.Millisecond)
	watched := make(chan error, 1)
	go func() { watched <- load.First(func() error { return meanwhile(begin) }) }()
	result, err = client.Run(load.Load{
		Begin: begin, Due: due, Patience: s.patience,
		Request: wire.Request{Rounds: b.rounds, DirtyKiB: s.keep},
	})
	return due, result, errors.Join(err, <-watched)
}
