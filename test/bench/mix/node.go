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

// sample holds the counters at one time.
type sample struct {
	at            int64 // as load.Now
	idle, steal   time.Duration
	pods, service time.Duration // CPU time of kubepods and of the service
	own           time.Duration // CPU time of this process
	work          uint64        // done by the hog
	stalled       time.Duration // time in which a thread of the service waited for a CPU
}

// usage is the difference of two samples.
type usage struct {
	CPUs    float64 `json:"-"`
	Busy    float64 `json:"busy"`    // fraction of the node that is neither idle nor stolen
	Steal   float64 `json:"steal"`   // fraction of the node that the hypervisor took
	Service float64 `json:"service"` // CPUs
	Batch   float64 `json:"batch"`   // CPUs of all other containers
	Other   float64 `json:"other"`   // CPUs of everything outside of this benchmark: the kernel, the runtime, Sluice, other programs
	Work    float64 `json:"work"`    // of the hog, per second
}

// jiffy is the unit of /proc/stat in user space (USER_HZ).
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
	// The fields of proc_stat(5) are: user nice system idle iowait irq softirq steal ...
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

// count returns the work that the hog has done.
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

// cpuTime reads nanoseconds from cpuacct.usage of cgroup v1, or usage_usec of cpu.stat of v2.
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

// stalled reads the total of the line "some" of a pressure file. The file is missing in a kernel
// without PSI, and can't be read if PSI was switched off at boot.
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
