package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/bench/mix/waits"
	"github.com/sluice-dev/sluice/test/runtime"
)

// demand is the service's CPU load in percent of the node, constant or alternating between the
// two.
type demand struct{ low, high int }

// mostLoad is the maximum of a demand.
const mostLoad = 90

// parseDemand parses "30" or "10-60".
func parseDemand(text string) (demand, error) {
	low, high, steps := strings.Cut(text, "-")
	if !steps {
		high = low
	}
	var d demand
	var err error
	if d.low, err = strconv.Atoi(low); err == nil {
		d.high, err = strconv.Atoi(high)
	}
	if err != nil || d.low < 0 || d.high < d.low || d.high > mostLoad {
		return d, fmt.Errorf("level %q: want percent of the node like 30, or 10-60 for steps between them, up to %d", text, mostLoad)
	}
	return d, nil
}

func (d demand) String() string {
	if d.low == d.high {
		return strconv.Itoa(d.low)
	}
	return fmt.Sprintf("%d-%d", d.low, d.high)
}

// stepTime is how long each load of an alternating demand lasts.
const stepTime = time.Second

// phases returns the load that a slice of that demand puts on the service.
func (b *bed) phases(o options, d demand) []load.Phase {
	rate := func(percent int) float64 {
		return float64(percent) / 100 * float64(b.cpus) * float64(time.Second) / float64(b.work)
	}
	settle := load.Phase{Rate: rate(d.low), For: o.settle}
	return append([]load.Phase{settle}, load.Steps(rate(d.low), rate(d.high), stepTime, o.slice)...)
}

// cell is a combination that the comparison measures repeatedly.
type cell struct {
	demand  demand
	hog     string
	setting setting
}

// cells returns all combinations. Without a hog, its kind makes no difference. Each hog also runs
// once without the service, to measure what it could do.
func cells(o options, all []setting) []cell {
	var out []cell
	for _, s := range all {
		for _, d := range o.levels {
			if s.hog == nowhere {
				out = append(out, cell{d, "", s})
				continue
			}
			for _, hog := range o.hogs {
				out = append(out, cell{d, hog, s})
			}
		}
	}
	for _, hog := range o.hogs {
		out = append(out, cell{demand{}, hog, setting{name: report.HogAlone, hog: batchPods}})
	}
	return out
}

// tally holds the results of a cell's slices.
type tally struct {
	cell    cell
	dropped int
	all     []outcome
}

// compare measures every cell o.repeat times, each time in another order. Cells of one load have
// the same arrivals. A slice is discarded and repeated if other programs used CPU, if the
// hypervisor kept CPUs from the node or let them run faster or more slowly than in most slices, or if the generator
// itself was late, as on a paused virtual machine. If it is interrupted, compare reports what it has.
func compare(ctx context.Context, o options, all []setting, r *report.Report) (err error) {
	b, err := newBed(ctx, o, runtime.Resources{CPURequest: request, MemoryRequest: 256 * mib}, o.hogs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.trace {
		if b.tracer, err = newTracer(); err != nil {
			return err
		}
	}
	r.Run.Work = b.work
	var tallies []*tally
	for _, c := range cells(o, all) {
		tallies = append(tallies, &tally{cell: c})
	}
	if err := b.interleave(ctx, o, tallies); err != nil {
		return err
	}
	for _, t := range tallies {
		r.Cells = append(r.Cells, t.summary())
	}
	r.Leavings()
	return nil
}

// interleave measures a slice of each cell o.repeat times. What a request costs is measured anew for
// each repetition, so that a wrong figure does not change the load of the whole run.
func (b *bed) interleave(ctx context.Context, o options, tallies []*tally) error {
	for repetition := range o.repeat {
		if repetition > 0 {
			if err := b.calibrate(ctx, o); err != nil {
				return err
			}
		}
		o.progress("%d/%d a request costs %s", repetition+1, o.repeat, b.work.Round(time.Microsecond))
		random := rand.New(rand.NewPCG(o.seed, uint64(repetition)))
		order := slices.Clone(tallies)
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for n, t := range order {
			where := fmt.Sprintf("%d/%d %3d/%d", repetition+1, o.repeat, n+1, len(order))
			if err := b.add(ctx, o, t, uint64(repetition), where); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s, level %s, hog %q: %w", t.cell.setting.name, t.cell.demand, t.cell.hog, err)
			}
		}
	}
	return nil
}

// add measures a slice of a cell.
func (b *bed) add(ctx context.Context, o options, t *tally, seed uint64, where string) error {
	const tries = 5
	for range tries {
		got, err := b.once(ctx, o, t.cell, seed)
		if err != nil {
			return err
		}
		o.progress("%s %-5s %-6s %-12s p99 %8s, busy %.2f, steal %.3f, CPUs of the service %.2f, batch work %.2f, others %.2f, pace %s", where, t.cell.demand, t.cell.hog, t.cell.setting.name,
			load.Quantile(got.latency, 0.99).Round(time.Microsecond), got.usage.Busy, got.usage.Steal, got.usage.Service, got.usage.Batch, got.usage.Other, got.pace.Round(time.Microsecond))
		late := load.Quantile(got.late, 0.99)
		// Kernel threads write files back, and their CPU time is charged to no cgroup. What a
		// hypervisor does for disks, and for the pages that new processes fault in, counts as stolen.
		disturbed := got.usage.Steal > o.maxSteal || got.usage.Other > o.maxOther
		b.paces = append(b.paces, got.pace)
		paced := !b.paces.differs(got.pace, o.maxPace)
		if late <= o.maxLate && paced && (!disturbed || slices.Contains([]string{"cache", "disk", "fork"}, t.cell.hog)) {
			t.all = append(t.all, got)
			return nil
		}
		t.dropped++
		b.quiet(ctx, o.maxOther)
	}
	return nil
}

// quiet waits for at most a minute until the node, with all hogs frozen, uses at most that many
// CPUs.
func (b *bed) quiet(ctx context.Context, most float64) {
	files, err := b.counters(nil)
	if err != nil {
		return
	}
	_ = await(ctx, "strangers to end", func() error {
		before, err := files.read()
		if err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
		after, err := files.read()
		if err == nil && between(before, after, b.cpus).Other > most {
			err = errors.New("they run")
		}
		return err
	})
}

func (b *bed) once(ctx context.Context, o options, c cell, seed uint64) (got outcome, err error) {
	if err := ctx.Err(); err != nil {
		return got, err
	}
	if c.setting.enter != nil {
		var leave func() error
		if leave, err = c.setting.enter(b, c.demand); err != nil {
			return got, err
		}
		defer func() { err = errors.Join(err, leave()) }()
	}
	return b.measure(ctx, slice{
		phases: b.phases(o, c.demand), seed: seed, patience: o.patience,
		hog: b.hogs[hogKey{c.hog, c.setting.hog}],
	})
}

func (t *tally) summary() report.Cell {
	c := report.Cell{Level: t.cell.demand.String(), Hog: t.cell.hog, Setting: t.cell.setting.name, Slices: len(t.all), Dropped: t.dropped}
	var latency, late, wait, p99s []time.Duration
	var all waits.Waits
	for _, o := range t.all {
		all.Add(o.waits)
		c.Lost += o.lost
		latency, late, wait = append(latency, o.latency...), append(late, o.late...), append(wait, o.wait...)
		p99s = append(p99s, load.Quantile(o.latency, 0.99))
	}
	c.Requests = len(latency)
	for group, sum := range all.Sum {
		c.Waits = append(c.Waits, report.Wait{For: group, PerRequest: sum / time.Duration(max(c.Requests, 1)), Longest: all.Longest[group]})
	}
	slices.SortFunc(c.Waits, func(a, b report.Wait) int {
		return cmp.Or(cmp.Compare(b.PerRequest, a.PerRequest), cmp.Compare(a.For, b.For))
	})
	c.P50, c.P99, c.P999 = load.Quantile(latency, 0.5), load.Quantile(latency, 0.99), load.Quantile(latency, 0.999)
	c.P99s = report.Spread{Low: load.Quantile(p99s, 0), Median: load.Quantile(p99s, 0.5), High: load.Quantile(p99s, 1)}
	c.Wait99, c.Late99 = load.Quantile(wait, 0.99), load.Quantile(late, 0.99)
	median := func(of func(outcome) float64) float64 {
		var values []float64
		for _, o := range t.all {
			values = append(values, of(o))
		}
		if len(values) == 0 {
			return 0
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	c.Busy = median(func(o outcome) float64 { return o.usage.Busy })
	c.Steal = median(func(o outcome) float64 { return o.usage.Steal })
	c.Service = median(func(o outcome) float64 { return o.usage.Service })
	c.Batch = median(func(o outcome) float64 { return o.usage.Batch })
	c.Other = median(func(o outcome) float64 { return o.usage.Other })
	c.Work = median(func(o outcome) float64 { return o.usage.Work })
	c.Pace = time.Duration(median(func(o outcome) float64 { return float64(o.pace) }))
	c.Stalled = median(func(o outcome) float64 { return o.stalled })
	return c
}
