// Mix measures how batch work on a node affects a latency-sensitive service, and what the batch
// work gets. It runs a private containerd and compares the service alone, unmanaged, with
// Kubernetes' own shares, and with Sluice, interleaved in one run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/test/bench/mix/report"
)

// options say what to measure and for how long.
type options struct {
	sluice           string // path of the binary
	config           string // Sluice's configuration
	settings         []string
	levels           []demand
	hogs             []string
	repeat           int
	slice, settle    time.Duration
	patience         time.Duration // time to wait for answers after a slice
	work             time.Duration // CPU time of a request
	maxPace          float64       // maximum difference of the CPUs' speed from the run's
	maxOther         float64       // maximum CPUs of other programs
	maxLate          time.Duration // maximum delay of the generator, at its p99
	maxSteal         float64       // maximum fraction of the node that the hypervisor takes
	seed             uint64
	parts            []string
	server           *server // that is the service of the mix part; nil for the probe
	programs         string  // folder of the servers' programs
	steps, slowSteps int     // numbers of load steps, for the reaction
	memoryRepeat     int
	swap             string        // kind of swap in the memory part
	growTime         time.Duration // duration of the growth of the service's memory
	morning          time.Duration // duration of each measurement of the morning part
	morningMemory    float64       // growth of the service's memory in it, in percent of the node's
	target           objective     // in the objective part
	objective        *objective    // that the service names; nil for none
	out              string        // path of the results, without extension
	demo, trace      bool
	unseen           bool // the plugin does not see what else the machine does, see runtime.SluiceOptions.Quiet
	progress         func(format string, args ...any)
}

func main() {
	if err := withoutPreemption(); err != nil {
		fmt.Fprintln(os.Stderr, "mix:", err)
		os.Exit(1)
	}
	// Threads of the load generator must not wait for Go's scheduler or garbage collector when
	// they wake.
	goruntime.GOMAXPROCS(16)
	debug.SetGCPercent(-1)
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		if o.demo {
			err = demo(ctx, o, os.Stdout, terminal())
		} else {
			err = run(ctx, o)
		}
		stop()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mix:", err)
		os.Exit(1)
	}
}

// withoutPreemption starts the program anew with a setting that Go reads at the start alone. Otherwise, Go signals all threads
// of the load generator every 10 ms, and they interrupt the service. Programs that this one starts run without the setting.
func withoutPreemption() error {
	const variable, off = "GODEBUG", "asyncpreemptoff=1"
	settings := os.Getenv(variable)
	if before, set := strings.CutSuffix(settings, off); set {
		return os.Setenv(variable, strings.TrimSuffix(before, ","))
	}
	if settings != "" {
		settings += ","
	}
	if err := os.Setenv(variable, settings+off); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}

func parse(args []string) (options, error) {
	o := options{patience: 3 * time.Second, progress: func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }}
	flags := flag.NewFlagSet("mix", flag.ContinueOnError)
	flags.StringVar(&o.sluice, "sluice", "bin/sluice", "the plugin")
	flags.BoolVar(&o.demo, "demo", false, "measure a few settings once, and draw them in the terminal")
	flags.BoolVar(&o.trace, "trace", false, "trace in the mix part what runs while the service waits; needs tracefs, and costs some CPU")
	flags.StringVar(&o.out, "out", "bin/mix-results", "where to write the results: .json, .txt and .svg are added")
	flags.IntVar(&o.repeat, "repeat", 4, "slices of each cell")
	flags.DurationVar(&o.slice, "slice", 3*time.Second, "time that is counted in each slice")
	flags.DurationVar(&o.settle, "settle", 6*time.Second, "time before it that is not counted: the loop gives batch work what is free for 2 s, step by step")
	flags.DurationVar(&o.work, "work", time.Millisecond, "CPU time of a request")
	flags.Float64Var(&o.maxOther, "other", 0.1, "CPUs of strangers above which a slice is measured again")
	flags.DurationVar(&o.maxLate, "late", 500*time.Microsecond, "p99 of the generator's own lateness above which a slice is measured again")
	flags.Float64Var(&o.maxSteal, "steal", 0.005, "fraction of the CPU time that the hypervisor stole, above which a slice is measured again")
	flags.Float64Var(&o.maxPace, "pace", 0.1, "fraction by which the CPUs' speed may differ from that of most slices, before a slice is measured again")
	flags.Uint64Var(&o.seed, "seed", 1, "of the order")
	names := flags.String("settings", strings.Join([]string{report.Alone, report.Again, report.Unmanaged, report.Kubernetes, report.Sluice}, ","), "what to compare: names of settings, mechanisms of the kernel among them, and .yaml files, each of which is Sluice with that configuration")
	levels := flags.String("levels", "10,30,60,10-60", "loads of the service, in percent of the node")
	hogs := flags.String("hogs", "cpu,memory,cache", "kinds of batch work: cpu, memory, cache, fork, disk")
	service := flags.String("service", probeService, "the service of the mix part: probe, nginx or redis; -work is for the probe alone")
	flags.StringVar(&o.programs, "servers", "bin/tools/servers", "folder of nginx and redis")
	config := flags.String("config", "", "sluice.yaml; the benchmark's own if empty")
	parts := flags.String("parts", "mix,memory,reaction", "what to measure; morning and objective, too, if they are named")
	flags.IntVar(&o.memoryRepeat, "memory-repeat", 5, "growths of the service in each setting of the memory part")
	flags.DurationVar(&o.growTime, "grow-time", 8*time.Second, "time in which the service takes another 1280 MiB in the memory part")
	flags.StringVar(&o.swap, "swap", "none", "swap of the node in the memory part: none, disk or zram")
	flags.DurationVar(&o.morning, "morning", 22*time.Minute, "time of each of the two measurements of the morning part")
	flags.Float64Var(&o.morningMemory, "morning-memory", 35, "growth of the service's memory in the morning, in percent of the node's; a job requests two sevenths of that")
	flags.DurationVar(&o.target.bound, "objective", 20*time.Millisecond, "bound on the service's p99 in the objective part")
	objectiveLoad := flags.String("objective-load", "50", "load of the service in it, in percent of the node: one that the service can just bear")
	flags.DurationVar(&o.target.time, "objective-time", 3*time.Minute, "time of each of its measurements, of which the first half is not counted; -repeat of each setting")
	flags.IntVar(&o.steps, "steps", 100, "load steps of the reaction part")
	flags.IntVar(&o.slowSteps, "slow-steps", 30, "the same with the slower loop")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.settings, o.hogs, o.parts = strings.Split(*names, ","), strings.Split(*hogs, ","), strings.Split(*parts, ",")
	for _, part := range o.parts {
		if !slices.Contains([]string{"mix", "memory", "reaction", "morning", "objective"}, part) {
			return o, fmt.Errorf("part %q: not one of mix, memory, reaction, morning, objective", part)
		}
	}
	if *service != probeService {
		all := servers()
		i := slices.IndexFunc(all, func(s server) bool { return s.name == *service })
		if i < 0 {
			return o, fmt.Errorf("service %q: not one of %s, nginx, redis", *service, probeService)
		}
		if len(o.parts) != 1 || o.parts[0] != "mix" {
			return o, fmt.Errorf("service %s: only for -parts mix", *service)
		}
		o.server = &all[i]
	}
	var err error
	if o.target.load, err = parseDemand(*objectiveLoad); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*levels, ",") {
		level, err := parseDemand(text)
		if err != nil {
			return o, err
		}
		if most := o.server.most(goruntime.NumCPU()); level.high > most {
			return o, fmt.Errorf("level %q: %s uses one CPU at most: up to %d", text, *service, most)
		}
		o.levels = append(o.levels, level)
	}
	o.config = defaultConfig
	if *config != "" {
		text, err := os.ReadFile(*config)
		o.config = string(text)
		return o, err
	}
	return o, nil
}

func run(ctx context.Context, o options) (err error) {
	all, err := settings(o.settings, o.config)
	if err != nil {
		return err
	}
	r := &report.Report{Run: report.Run{At: time.Now(), Service: o.server.String(), Work: o.work, Slice: o.slice, Settle: o.settle, Repeat: o.repeat, MaxOther: o.maxOther, MaxLate: o.maxLate, MaxSteal: o.maxSteal, MaxPace: o.maxPace, Config: o.config}}
	if r.Machine, err = machine(); err != nil {
		return err
	}
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"mix", func() error { return compare(ctx, o, all, r) }},
		{"memory", func() (err error) { r.Memory, err = takeBacks(ctx, o); return err }},
		{"reaction", func() (err error) { r.Reactions, err = reactions(ctx, o); return err }},
		{"morning", func() (err error) { r.Mornings, err = mornings(ctx, o); return err }},
		{"objective", func() (err error) { r.Objectives, err = objectives(ctx, o); return err }},
	} {
		if !slices.Contains(o.parts, part.name) || ctx.Err() != nil {
			continue
		}
		if err := part.measure(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("part %s: %w", part.name, err)
		}
	}
	return errors.Join(save(r, o.out), ctx.Err())
}

// save prints the report and writes it to files.
func save(r *report.Report, path string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	table := r.Table()
	fmt.Print(table)
	return errors.Join(
		os.WriteFile(path+".json", append(text, '\n'), 0o644),
		os.WriteFile(path+".txt", []byte(table), 0o644),
		os.WriteFile(path+".svg", []byte(r.Plot()), 0o644),
	)
}
