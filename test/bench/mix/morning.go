package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/engine/forecaststate"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/probe/wire"
	"github.com/sluice-dev/sluice/test/runtime"
)

// In the morning part, days last an hour. The service is used little in the night; then its load and
// its memory rise, and stay high. The plugin knows such days from the four real days before, which
// are made. Batch jobs buy what the node sells meanwhile.
const (
	dayTime    = time.Hour
	daysKnown  = 96
	nightLoad  = 15 // in percent of the node's CPUs
	dayLoad    = 55
	rampSteps  = 12               // of the rise
	mostOfADay = 20 * time.Minute // which the high load lasts

	// nightRequest is the service's request: a new container counts with it for a minute.
	nightRequest workload.MilliCPU = 300
)

const morningConfig = `
defaults: {besteffort: BE}
control: {mode: on, prediction: {mode: %s}, eviction: {by: cri, socket: $CRI}}`

// morningTimes are the durations of the night, the rise and the day of a measurement. The market
// opens some time after the night has begun, when the plugin knows what the service uses.
type morningTimes struct{ settle, night, rise, day time.Duration }

// morningOf divides the time of a measurement.
func morningOf(whole time.Duration) morningTimes {
	return morningTimes{settle: whole / 10, night: whole * 60 / 100, rise: whole * 10 / 100, day: whole * 30 / 100}
}

func (t morningTimes) whole() time.Duration { return t.night + t.rise + t.day }

// level is how much of the day's additional load there is, 0 to 1, at a time since the rise began.
func (t morningTimes) level(since time.Duration) float64 {
	switch {
	case since < 0 || since >= t.rise+mostOfADay:
		return 0
	case since < t.rise:
		return float64(since) / float64(t.rise)
	}
	return 1
}

// mornings measures a morning without and with decisions by forecasts.
func mornings(ctx context.Context, o options) (out []report.Morning, err error) {
	b, err := newBed(ctx, o, runtime.Resources{CPURequest: nightRequest, MemoryRequest: 256 * mib}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, mode := range []control.Mode{control.Preview, control.On} {
		m, err := b.morning(ctx, o, mode)
		if err != nil {
			return nil, fmt.Errorf("prediction.mode %s: %w", mode, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// morning measures one mode of the forecasts.
func (b *bed) morning(ctx context.Context, o options, mode control.Mode) (m report.Morning, err error) {
	times := morningOf(o.morning)
	memory, err := runtime.NodeMemory()
	if err != nil {
		return m, err
	}
	growth := int64(float64(memory) * o.morningMemory / 100)
	sluice, leave, err := b.start(fmt.Sprintf(morningConfig, mode), o.unseen)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := b.teach(ctx, o, times, growth, sluice); err != nil {
		return m, err
	}
	market := newMarket(b, sluice, growth*2/7, o.progress)
	defer func() { err = errors.Join(err, market.close()) }()
	answers, err := b.trade(ctx, o, times, growth, market)
	if err != nil {
		return m, err
	}
	s, err := sluice.Status()
	if err != nil {
		return m, err
	}
	m = market.result(times.whole())
	m.Prediction, m.Notices, m.Squeezes = string(mode), s.Loop.Notices.Counts.Given, s.Loop.Benefit.Day.Squeezes
	m.Phases = times.phases(market, answers)
	return m, nil
}

// teach restarts the plugin with what it would have learned in the days before, and waits until it offers something:
// a node that closes at first sells nothing for minutes.
func (b *bed) teach(ctx context.Context, o options, times morningTimes, growth int64, sluice *runtime.Sluice) error {
	night, err := b.others(ctx, o, times, sluice)
	if err != nil {
		return err
	}
	o.progress("others use %.2f CPUs and %.1f GiB in the night", float64(night.CPU)/1000, float64(night.MemoryBytes)/(1<<30))
	day := control.Amount{CPU: night.CPU + workload.MilliCPU((dayLoad-nightLoad)*10*b.cpus), MemoryBytes: night.MemoryBytes + growth}
	if err := forecaststate.Write(sluice.StateDir, learned(time.Now(), times, night, day).Encode()); err != nil {
		return err
	}
	if err := sluice.Restart(); err != nil {
		return err
	}
	return await(ctx, "the plugin to know what the node uses", func() error {
		s, err := sluice.Status()
		if err == nil && !s.Loop.Offer.Known {
			err = errors.New(s.Loop.Offer.Why)
		}
		return err
	})
}

// trade loads the service while the market follows the node.
func (b *bed) trade(ctx context.Context, o options, times morningTimes, growth int64, market *market) (answers []answer, err error) {
	ctx, cancel := context.WithCancel(ctx)
	begin := load.Now() + int64(time.Second)
	served := make(chan error, 1)
	go func() {
		var err error
		answers, err = b.serveMorning(ctx, o, times, begin, growth)
		served <- err
	}()
	for at := times.settle.Truncate(time.Second); at < times.whole() && err == nil && ctx.Err() == nil; at += time.Second {
		load.SleepUntil(begin + int64(at))
		err = market.step(at)
	}
	if err != nil {
		cancel()
	}
	err = errors.Join(err, <-served, ctx.Err())
	cancel()
	return answers, err
}

// phases divides the morning.
func (t morningTimes) phases(market *market, answers []answer) (all []report.MorningPhase) {
	for _, p := range []struct {
		name     string
		from, to time.Duration
	}{
		{"night", t.settle, max(0, t.night-10*time.Minute)},
		{"before the rise", max(0, t.night-10*time.Minute), t.night},
		{"rise", t.night, t.night + t.rise},
		{"day", t.night + t.rise, t.whole()},
	} {
		phase := market.phase(p.from, p.to)
		var latency []time.Duration
		for _, a := range answers {
			if a.due >= p.from && a.due < p.to {
				latency = append(latency, a.latency)
			}
		}
		phase.Name, phase.P50, phase.P99 = p.name, load.Quantile(latency, 0.5), load.Quantile(latency, 0.99)
		all = append(all, phase)
	}
	return all
}

// others measures what everything but batch work uses in the night, as the plugin counts it.
func (b *bed) others(ctx context.Context, o options, times morningTimes, sluice *runtime.Sluice) (night control.Amount, err error) {
	loaded := slice{phases: []load.Phase{{Rate: b.rate(o, nightLoad), For: times.settle / 2}}, seed: o.seed, patience: o.patience}
	_, _, err = b.send(ctx, loaded, func(begin int64) error {
		load.SleepUntil(begin + int64(loaded.whole()))
		s, err := sluice.Status()
		if err == nil {
			night = control.Amount{CPU: s.Loop.Node.CPU.Usage - s.Loop.Batch.Used, MemoryBytes: s.Loop.Memory.OnlineBytes}
		}
		return err
	})
	return night, err
}

// rate is the number of requests per second that use that many percent of the node's CPUs.
func (b *bed) rate(o options, percent int) float64 {
	return b.phases(o, demand{percent, percent})[0].Rate
}

// learned is what a plugin knows after days whose rises are an hour apart, the next one after the
// night that begins now.
func learned(now time.Time, times morningTimes, night, day control.Amount) *predict.Set {
	set := predict.NewSet(predict.DefaultConfig())
	rise := now.Add(times.night)
	for at := rise.Add(-daysKnown * dayTime); at.Before(now); at = at.Add(time.Minute) {
		since := at.Sub(rise.Add(-daysKnown*dayTime)) % dayTime
		level := times.level(since)
		set.Add(at, predict.Key{Kind: predict.Node, Resource: predict.CPU}, (float64(night.CPU)+level*float64(day.CPU-night.CPU))/1000)
		set.Add(at, predict.Key{Kind: predict.Node, Resource: predict.Memory}, float64(night.MemoryBytes)+level*float64(day.MemoryBytes-night.MemoryBytes))
		set.Search(at)
	}
	return set
}

// answer is the latency of a request that was due at that time since the beginning.
type answer struct{ due, latency time.Duration }

// serveMorning loads the service: all the time with the night's load, and from the rise on with
// what the day adds. The requests of the rise keep memory, which is freed at the end.
func (b *bed) serveMorning(ctx context.Context, o options, times morningTimes, begin, growth int64) ([]answer, error) {
	more := b.rate(o, dayLoad) - b.rate(o, nightLoad)
	var rise []load.Phase
	for step := range rampSteps {
		rise = append(rise, load.Phase{Rate: more * (float64(step) + 0.5) / rampSteps, For: times.rise / rampSteps})
	}
	keep := uint32(growth / 1024 / int64(len(load.Schedule(rise, o.seed+1))))
	type part struct {
		from   time.Duration
		phases []load.Phase
		keep   uint32
	}
	var all [3]struct {
		answers []answer
		err     error
	}
	done := make(chan int, len(all))
	for i, p := range []part{
		{0, []load.Phase{{Rate: b.rate(o, nightLoad), For: times.whole()}}, 0},
		{times.night, rise, keep},
		{times.night + times.rise, []load.Phase{{Rate: more, For: times.day}}, 0},
	} {
		client, err := b.dial(ctx)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		defer context.AfterFunc(ctx, client.Interrupt)()
		go func() {
			l := load.Load{
				Begin: begin + int64(p.from), Due: load.Schedule(p.phases, o.seed+uint64(i)), Patience: o.patience,
				Request: wire.Request{Rounds: b.rounds, DirtyKiB: p.keep},
			}
			result, err := client.Run(l)
			all[i].err = err
			if err == nil {
				for k, latency := range result.Latency {
					all[i].answers = append(all[i].answers, answer{p.from + l.Due[k], latency})
				}
			}
			done <- i
		}()
	}
	var out []answer
	var errs []error
	for range all {
		got := all[<-done]
		out, errs = append(out, got.answers...), append(errs, got.err)
	}
	return out, errors.Join(errs...)
}
