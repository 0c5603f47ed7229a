package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/probe/wire"
	"github.com/sluice-dev/sluice/test/runtime"
)

// objective is a bound on the 99th percentile of the service's latency, in the objective part. Batch
// work there has the service's weight, so that all it leaves the service is what the budget denies it.
type objective struct {
	bound time.Duration
	load  demand
	time  time.Duration // of each measurement; the first half is not counted
}

// annotations returns those of a service that serves its metrics on that port.
func (o *objective) annotations(port int) map[string]string {
	return map[string]string{
		"class.sluice.dev": "LS",
		"slo.sluice.dev":   fmt.Sprintf("{latency: {metric: %s, quantile: 0.99, bound: %s, port: %d, path: %s}}", wire.Durations, o.bound, port, wire.MetricsPath),
	}
}

// objectiveConfig is Sluice's configuration by the mode of control.slo and the threshold in percent.
const objectiveConfig = `
authorize: [{features: [slo], namespaces: [default]}]
classes: {BE: {cpu-identity: 0}}
control: {mode: on, slo: {mode: %s}, batch: {by: quota, thresholdPercent: %d, onlineWeight: 100}}`

// objectiveSettings returns the fixed thresholds, which do not look at the objective, and the
// highest of them with it.
func objectiveSettings() []setting {
	all := []setting{{name: report.Alone}}
	add := func(name, mode string, threshold int) {
		all = append(all, setting{name: name, hog: greedy, enter: func(b *bed, _ demand) (func() error, error) {
			return b.manage(fmt.Sprintf(objectiveConfig, mode, threshold))
		}})
	}
	for _, threshold := range []int{60, 80, 100} {
		add(fmt.Sprintf("threshold %d", threshold), "off", threshold)
	}
	add("100 and objective", "on", 100)
	return all
}

// objectives measures in each setting how often the service's objective was held, and what batch
// work got.
func objectives(ctx context.Context, o options) (out []report.Objective, err error) {
	o.objective = &o.target
	o.settle, o.slice = o.objective.time/2, o.objective.time/2
	b, err := newBed(ctx, o, runtime.Resources{CPURequest: request, MemoryRequest: 256 * mib}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.addHog(ctx, "cpu", greedy); err != nil {
		return nil, err
	}
	var tallies []*tally
	for _, s := range objectiveSettings() {
		c := cell{o.objective.load, "cpu", s}
		if s.hog == nowhere {
			c.hog = ""
		}
		tallies = append(tallies, &tally{cell: c})
	}
	if err := b.interleave(ctx, o, tallies); err != nil {
		return nil, err
	}
	for _, t := range tallies {
		n := report.Objective{Cell: t.summary(), Bound: o.objective.bound, Time: o.objective.time}
		for _, got := range t.all {
			for _, p99 := range got.windows {
				n.Windows++
				if p99 < n.Bound {
					n.Held++
				}
			}
		}
		out = append(out, n)
	}
	return out, nil
}
