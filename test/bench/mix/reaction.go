package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// pace is the rhythm of load steps. The load is low until batch work has got back what it can,
// plus a random time of up to a second, so that steps hit the loop at any moment of its interval;
// then it is high.
type pace struct {
	name       string
	config     string
	steps      int
	calm, busy time.Duration
}

// Batch work gets back in one step what it gave, so that the next load step takes it again. With a
// threshold of its own, the budget follows the load even if the kernel preempts batch work at
// once.
const (
	reactionConfig = `
defaults: {besteffort: BE}
control: {mode: on, batch: {thresholdPercent: 65, growPercent: 100}}`
	slowConfig = `
defaults: {besteffort: BE}
control: {mode: on, fastInterval: 1s, batch: {thresholdPercent: 65, growPercent: 100}}`
)

// reactions measures the loop, and one with an interval of a second.
func reactions(ctx context.Context, o options) (out []report.Reaction, err error) {
	b, err := newBed(ctx, o, runtime.Resources{CPURequest: request, MemoryRequest: 256 * mib}, []string{"cpu"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, p := range []pace{
		{report.Sluice, reactionConfig, o.steps, 3500 * time.Millisecond, 600 * time.Millisecond},
		{report.SlowLoop, slowConfig, o.slowSteps, 4500 * time.Millisecond, 2500 * time.Millisecond},
	} {
		r, err := b.react(ctx, o, p)
		if err != nil {
			return nil, fmt.Errorf("reaction, %s: %w", p.name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// react steps the service's load up while a CPU hog runs, and samples each millisecond how much
// CPU the kernel allows the hog.
func (b *bed) react(ctx context.Context, o options, p pace) (r report.Reaction, err error) {
	const low, high = 10, 60
	r = report.Reaction{Setting: p.name, Steps: p.steps}
	random := rand.New(rand.NewPCG(o.seed, 2))
	d := demand{low, high}
	levels := b.phases(o, d)
	phases := []load.Phase{{Rate: levels[0].Rate, For: o.settle}}
	var steps []time.Duration
	at := o.settle
	for range p.steps {
		calm := p.calm + time.Duration(random.Int64N(int64(time.Second)))
		steps = append(steps, at+calm)
		phases = append(phases, load.Phase{Rate: levels[0].Rate, For: calm}, load.Phase{Rate: levels[0].Rate * high / low, For: p.busy})
		at += calm + p.busy
	}
	leave, err := b.manage(p.config)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	hog := b.hogs[hogKey{"cpu", batchPods}]
	files, err := b.limits(hog.Cgroup)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, files.close()) }()

	var begin int64
	var seen []grant
	steady := slice{phases: phases, seed: o.seed, hog: hog, patience: o.patience}
	if _, _, err := b.send(ctx, steady, func(at int64) (err error) {
		begin = at
		seen, err = files.watch(at + int64(steady.whole()))
		return err
	}); err != nil {
		return r, err
	}
	var took []time.Duration
	for _, step := range steps {
		from := begin + int64(step)
		// The quota must fall by a quarter of the step, so that the loop's response to noise
		// doesn't count.
		if squeezed, ok := firstBelow(seen, from, from+int64(p.busy), float64(high-low)/100*float64(b.cpus)/4); ok {
			took = append(took, time.Duration(squeezed-from))
		} else {
			r.Missed++
		}
	}
	r.P50, r.P99, r.Max = load.Quantile(took, 0.5), load.Quantile(took, 0.99), load.Quantile(took, 1)
	return r, nil
}

// grant is the CPU that batch work may use from a time on.
type grant struct {
	at   int64 // as load.Now
	cpus float64
}

// firstBelow returns when batch work first had that much less than at the beginning.
func firstBelow(seen []grant, from, to int64, by float64) (int64, bool) {
	var before float64
	for _, g := range seen {
		switch {
		case g.at <= from:
			before = g.cpus
		case g.at < to && g.cpus <= before-by:
			return g.at, true
		}
	}
	return 0, false
}

// limits holds the open files that limit a pod's CPUs, of its own cgroups and of the batch cgroup.
type limits struct {
	groups []limit
	cpus   int
}

type limit struct{ quota, period, cpus *os.File }

// limits opens the files of the batch cgroup and of the pod's cgroups.
func (b *bed) limits(pod string) (l limits, err error) {
	l.cpus = b.cpus
	roots := map[string]string{}
	for _, file := range []string{"cpu.cfs_quota_us", "cpuset.cpus"} {
		path, err := b.batch.Where(file)
		if err != nil {
			return l, err
		}
		roots[file] = filepath.Dir(path)
	}
	below := []string{"", filepath.Base(pod)}
	inside, err := filepath.Glob(filepath.Join(roots["cpu.cfs_quota_us"], filepath.Base(pod), "*", "cpu.cfs_quota_us"))
	if err != nil {
		return l, err
	}
	for _, path := range inside {
		below = append(below, filepath.Join(filepath.Base(pod), filepath.Base(filepath.Dir(path))))
	}
	for _, dir := range below {
		var g limit
		var errs [3]error
		g.quota, errs[0] = os.Open(filepath.Join(roots["cpu.cfs_quota_us"], dir, "cpu.cfs_quota_us"))
		g.period, errs[1] = os.Open(filepath.Join(roots["cpu.cfs_quota_us"], dir, "cpu.cfs_period_us"))
		g.cpus, errs[2] = os.Open(filepath.Join(roots["cpuset.cpus"], dir, "cpuset.cpus"))
		l.groups = append(l.groups, g)
		if err := errors.Join(errs[:]...); err != nil {
			return l, errors.Join(err, l.close())
		}
	}
	return l, nil
}

// watch samples each millisecond and records each change, until that time of load.Now.
func (l limits) watch(until int64) ([]grant, error) {
	var seen []grant
	for next := load.Now(); next < until; next += int64(time.Millisecond) {
		load.SleepUntil(next)
		granted := float64(l.cpus)
		for _, g := range l.groups {
			cpus, err := g.granted(l.cpus)
			if err != nil {
				return nil, err
			}
			granted = min(granted, cpus)
		}
		if len(seen) == 0 || seen[len(seen)-1].cpus != granted {
			seen = append(seen, grant{load.Now(), granted})
		}
	}
	return seen, nil
}

func (g limit) granted(cpus int) (float64, error) {
	quota, err := integer(g.quota)
	if err != nil {
		return 0, err
	}
	period, err := integer(g.period)
	if err != nil {
		return 0, err
	}
	text, err := again(g.cpus)
	if err != nil {
		return 0, err
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", g.cpus.Name(), err)
	}
	granted := float64(min(set.Size(), cpus))
	if quota > 0 && period > 0 {
		granted = min(granted, float64(quota)/float64(period))
	}
	return granted, nil
}

func integer(file *os.File) (int64, error) {
	text, err := again(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return n, nil
}

// again reads an open file of a cgroup from its beginning.
func again(file *os.File) (string, error) {
	var buffer [256]byte
	n, err := file.ReadAt(buffer[:], 0)
	if n > 0 {
		err = nil
	}
	return strings.TrimSpace(string(buffer[:n])), err
}

func (l limits) close() error {
	var errs []error
	for _, g := range l.groups {
		for _, file := range []*os.File{g.quota, g.period, g.cpus} {
			if file != nil {
				errs = append(errs, file.Close())
			}
		}
	}
	return errors.Join(errs...)
}
