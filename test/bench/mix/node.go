package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/probe/wire"
)

// sample is what the counters say at a moment.
type sample struct {
	at            int64 // of load.Now
	idle, steal   time.Duration
	pods, service time.Duration // CPU time of kubepods and of the service
	own           time.Duration // CPU time of this process
	work          uint64        // of the hog
	stalled       time.Duration // some thread of the service waited for a CPU
}

// usage is what happened between two samples.
type usage struct {
	CPUs    float64 `json:"-"`
	Busy    float64 `json:"busy"`    // share of the node, not idle and not stolen
	Steal   float64 `json:"steal"`   // share of the node that the hypervisor took
	Service float64 `json:"service"` // CPUs
	Batch   float64 `json:"batch"`   // CPUs of all other containers
	Other   float64 `json:"other"`   // CPUs of nobody of this benchmark: the kernel, the runtime, Sluice, strangers
	Work    float64 `json:"work"`    // of the hog, per second
}

// jiffy is the unit of /proc/stat for user space (USER_HZ).
const jiffy = 10 * time.Millisecond

// counters are the files that a sample is read from.
type counters struct {
	pods, service, pressure string
	work                    string // "" without a hog
}

func (c counters) read() (sample, error) {
	s := sample{at: load.Now()}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s, err
	}
	// proc_stat(5): user nice system idle iowait irq softirq steal ...
	first, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(first)
	if len(fields) < 9 {
		return s, fmt.Errorf("/proc/stat begins with %q", first)
	}
	for _, field := range []struct {
		index int
		to    *time.Duration
	}{{4, &s.idle}, {5, &s.idle}, {8, &s.steal}} {
		n, err := strconv.ParseInt(fields[field.index], 10, 64)
		if err != nil {
			return s, fmt.Errorf("/proc/stat: %w", err)
		}
		*field.to += time.Duration(n) * jiffy
	}
	if c.work != "" {
		if s.work, err = c.count(); err != nil {
			return s, err
		}
	}
	var self syscall.Rusage
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	s.own = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	err = errors.Join(err, cpuTime(c.pods, &s.pods), cpuTime(c.service, &s.service), stalled(c.pressure, &s.stalled))
	return s, err
}

// count is the hog's work so far.
func (c counters) count() (uint64, error) {
	text, err := os.ReadFile(c.work)
	return wire.Count(text), err
}

func number(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// cpuTime reads nanoseconds from cgroup v1's cpuacct.usage, or usage_usec from v2's cpu.stat.
func cpuTime(path string, to *time.Duration) error {
	if filepath.Base(path) == "cpuacct.usage" {
		n, err := number(path)
		*to = time.Duration(n)
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			microseconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			*to = time.Duration(microseconds) * time.Microsecond
			return err
		}
	}
	return fmt.Errorf("%s has no usage_usec", path)
}

// stalled reads the total of the line "some" of a pressure file. A kernel without
// PSI has no such file, or can't read it if PSI was switched off at boot.
func stalled(path string, to *time.Duration) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	_, total, _ := strings.Cut(first, "total=")
	microseconds, err := strconv.ParseInt(total, 10, 64)
	*to = time.Duration(microseconds) * time.Microsecond
	return err
}

func between(a, b sample, cpus int) usage {
	wall := float64(b.at - a.at)
	share := func(d time.Duration) float64 { return float64(d) / wall }
	u := usage{
		CPUs:    float64(cpus),
		Steal:   share(b.steal-a.steal) / float64(cpus),
		Service: share(b.service - a.service),
		Batch:   share(b.pods - a.pods - (b.service - a.service)),
		Work:    float64(b.work-a.work) / wall * float64(time.Second),
	}
	u.Busy = 1 - share(b.idle-a.idle)/float64(cpus) - u.Steal
	u.Other = u.Busy*float64(cpus) - share(b.pods-a.pods) - share(b.own-a.own)
	return u
}
