// Classes compares what ranks batch work below a service on the kernel that it runs on: Kubernetes' CPU weights,
// weights of services that are 16 times as large, and Sluice's settings, which are such weights and the idle class. It
// needs cgroup v2 and a machine on which nothing else runs, such as the guests of test/vm/bench.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
)

// A setting ranks batch work below the service.
type setting struct {
	name    string
	weight  knobs.Shares // of the cgroup of all services
	idle    bool         // batch work is in the idle class
	stopped bool         // there is no batch work
}

func settings() []setting {
	return []setting{
		{name: "alone", weight: 1024, stopped: true},
		{name: "kubernetes", weight: 1024},
		{name: "weights", weight: 16384},
		{name: "weights and idle class", weight: 16384, idle: true},
	}
}

// A plan is what is measured.
type plan struct {
	levels  []int         // of load, in percent of all CPUs
	cost    time.Duration // of a request, in CPU time
	slice   time.Duration // how long each setting is measured
	repeat  int           // how often each setting is measured
	workers int           // processes of the service
}

func main() {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		play(os.Args[1:])
	}
	var p plan
	levels := flag.String("levels", "10,30,60", "loads of the service, in percent of all CPUs")
	flag.DurationVar(&p.cost, "work", 6*time.Millisecond, "CPU time of a request")
	flag.DurationVar(&p.slice, "slice", 10*time.Second, "how long each setting is measured")
	flag.IntVar(&p.repeat, "repeat", 4, "how often each setting is measured")
	flag.IntVar(&p.workers, "workers", 4, "processes of the service")
	flag.Parse()
	if err := run(p, *levels); err != nil {
		fmt.Fprintln(os.Stderr, "classes:", err)
		os.Exit(1)
	}
}

// run measures all settings in turn, and prints each slice and a summary.
func run(p plan, levels string) error {
	for text := range strings.SplitSeq(levels, ",") {
		level, err := strconv.Atoi(text)
		if err != nil || level < 1 || level > 99 {
			return fmt.Errorf("-levels: %q is not a percentage from 1 to 99", text)
		}
		p.levels = append(p.levels, level)
	}
	if p.cost <= 0 || p.slice <= 0 || p.repeat < 1 || p.workers < 1 {
		return errors.New("-work, -slice, -repeat and -workers must be greater than 0")
	}
	b, err := newBed(p)
	if err != nil {
		return err
	}
	defer b.end()
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return err
	}
	fmt.Printf("Linux %s, %d CPUs; %d processes of a service, %d of batch work; requests of %s, slices of %s\n",
		unix.ByteSliceToString(kernel.Release[:]), b.cpus, p.workers, len(b.hogs), p.cost, p.slice)
	results := map[key][]slice{}
	for i := range p.repeat {
		for _, level := range p.levels {
			all := settings()
			for k := range all {
				s := all[(k+i)%len(all)] // no setting is always the first one
				r, err := b.measure(s, level, uint64(i))
				if err != nil {
					return fmt.Errorf("%s at %d %%: %w", s.name, level, err)
				}
				fmt.Printf("%d/%d %d %% %s: %s at the 99th percentile, CPUs of the service %.2f, batch work %.2f\n",
					i+1, p.repeat, level, s.name, load.Quantile(r.latencies, .99).Round(10*time.Microsecond), r.service, r.batch)
				results[key{level, s.name}] = append(results[key{level, s.name}], r)
			}
		}
	}
	return summarize(p.levels, results)
}

type key struct {
	level   int
	setting string
}

// summarize prints a table with the medians of all slices: latencies in ms, and CPUs.
func summarize(levels []int, results map[key][]slice) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nload\tsetting\tmean\tp99\tof slices\tp99.9\tservice\tbatch work")
	for _, level := range levels {
		for _, s := range settings() {
			var means, p99s, p999s, services, batches []float64
			for _, r := range results[key{level, s.name}] {
				means = append(means, milliseconds(mean(r.latencies)))
				p99s = append(p99s, milliseconds(load.Quantile(r.latencies, .99)))
				p999s = append(p999s, milliseconds(load.Quantile(r.latencies, .999)))
				services, batches = append(services, r.service), append(batches, r.batch)
			}
			fmt.Fprintf(table, "%d %%\t%s\t%.1f\t%.1f\t%.1f–%.1f\t%.1f\t%.2f\t%.2f\n", level, s.name,
				median(means), median(p99s), slices.Min(p99s), slices.Max(p99s), median(p999s), median(services), median(batches))
		}
	}
	return table.Flush()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mean(samples []time.Duration) time.Duration {
	var sum time.Duration
	for _, s := range samples {
		sum += s
	}
	return sum / time.Duration(max(1, len(samples)))
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}
