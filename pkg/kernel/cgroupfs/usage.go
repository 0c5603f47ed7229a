package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// The methods below read the counters of a cgroup and its descendants. They keep the files open
// (see Forget) and don't allocate. Each fills in its counters but not the time of the reading.
// The error is ErrGone if the container has ended, and ErrUnsupported if the kernel or this
// cgroup doesn't have the counter.

// CPU reads the CPU time of a cgroup and, if quota isn't nil, the throttling by its own quota;
// on v2 both are in one file (cpu.stat). It reports whether throttling is counted, which needs
// the cpu controller. For a container with two levels (see Nest), whose quotas are the same, it
// adds the throttling of both: the level that throttles keeps the other from exhausting its
// quota.
func (d *Driver) CPU(dir string, usage *observe.CPUCounters, quota *observe.ThrottlingCounters) (throttling bool, err error) {
	throttling, err = d.ownCPU(dir, usage, quota)
	if inner, _ := d.inner(dir); err == nil && throttling && inner != "" {
		var total observe.CPUCounters
		var below observe.ThrottlingCounters
		if counted, err := d.ownCPU(inner, &total, &below); err == nil && counted {
			quota.Periods, quota.Throttled = max(quota.Periods, below.Periods), max(quota.Throttled, below.Throttled)
			quota.Time += below.Time
		}
	}
	return throttling, err
}

func (d *Driver) ownCPU(dir string, usage *observe.CPUCounters, quota *observe.ThrottlingCounters) (throttling bool, err error) {
	if d.cpuacct == nil {
		if d.unified == nil {
			return false, fmt.Errorf("%w: neither v1's cpuacct controller nor cgroup v2 is mounted", ErrUnsupported)
		}
		// v2 counts usage in every cgroup, but throttling only where the cpu controller is
		// enabled.
		err = d.unified.with(dir, func(c *cgroup) error {
			return c.scanFile("cpu.stat", func(b []byte) { throttling = parseCPUStat(b, usage, quota) })
		})
		return throttling && quota != nil, err
	}
	err = d.cpuacct.with(dir, func(c *cgroup) error {
		return c.scanFile("cpuacct.usage", func(b []byte) { usage.Usage = time.Duration(count(b)) })
	})
	if err != nil || quota == nil || d.cpu == nil {
		return false, err
	}
	err = d.cpu.with(dir, func(c *cgroup) error {
		return c.scanFile("cpu.stat", func(b []byte) { throttling = parseCPUStat(b, nil, quota) })
	})
	if errors.Is(err, ErrUnsupported) { // the kernel lacks CONFIG_CFS_BANDWIDTH
		err = nil
	}
	return throttling, err
}

// parseCPUStat reads v1's and v2's cpu.stat, and reports whether it counts throttling.
func parseCPUStat(text []byte, usage *observe.CPUCounters, quota *observe.ThrottlingCounters) (throttling bool) {
	for name, value := range numbers(text) {
		switch {
		case usage != nil && string(name) == "usage_usec":
			usage.Usage = microseconds(value)
		case quota == nil:
		case string(name) == "nr_periods":
			quota.Periods, throttling = value, true
		case string(name) == "nr_throttled":
			quota.Throttled = value
		case string(name) == "throttled_usec":
			quota.Time = microseconds(value)
		case string(name) == "throttled_time":
			quota.Time = time.Duration(value)
		}
	}
	return throttling
}

// Stalls reads the pressure (PSI) of a cgroup: from v2, which often exists beside v1
// controllers, or from some vendors' v1 (in cpuacct).
func (d *Driver) Stalls(dir string, into *observe.PressureTotals) error {
	err := ErrUnsupported
	for _, h := range [...]*hierarchy{d.unified, d.cpuacct} {
		if h == nil {
			continue
		}
		if err = h.with(dir, func(c *cgroup) error { return c.stalls(into) }); err == nil {
			return nil
		}
		if !errors.Is(err, ErrGone) && !errors.Is(err, ErrUnsupported) {
			break
		}
	}
	return fmt.Errorf("the pressure of cgroup %s, which v2 and some vendors' v1 have: %w", dir, err)
}

func (c *cgroup) stalls(into *observe.PressureTotals) error {
	for _, file := range [...]struct {
		name       string
		some, full *observe.Stall
	}{
		{"cpu.pressure", &into.CPU, nil},
		{"memory.pressure", &into.Memory, &into.MemoryFull},
		{"io.pressure", &into.IO, &into.IOFull},
	} {
		err := c.scanFile(file.name, func(b []byte) {
			some, full, _ := observe.ParsePressure(b)
			*file.some = some
			if file.full != nil {
				*file.full = full
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// MemoryUse reads a cgroup's memory, its page cache and how much was reclaimed.
func (d *Driver) MemoryUse(dir string, into *observe.ContainerMemoryCounters) error {
	if d.memory == nil {
		return fmt.Errorf("%w: the memory controller is not mounted", ErrUnsupported)
	}
	return d.memory.with(dir, func(c *cgroup) error {
		current, events := "memory.usage_in_bytes", "memory.oom_control"
		if c.in.v2 {
			current, events = "memory.current", "memory.events"
		}
		err := c.scanFile(current, func(b []byte) { into.Current = count(b) })
		if err == nil {
			err = c.scanFile("memory.stat", func(b []byte) { parseMemoryStat(b, !c.in.v2, into) })
		}
		if err == nil {
			err = c.scanFile(events, func(b []byte) { into.OOMKills = count(field(b, "oom_kill")) }) // v1: Linux 4.13
		}
		return err
	})
}

// Swap reads how much of a cgroup's memory is in swap, and how much more its own limit lets in. On
// cgroup v1, where no limit counts swap alone, memory.swappiness 0 counts as a limit of 0.
func (d *Driver) Swap(dir string, into *observe.SwapCounters) error {
	if d.memory == nil {
		return fmt.Errorf("%w: the memory controller is not mounted", ErrUnsupported)
	}
	return d.memory.with(dir, func(c *cgroup) error {
		limit := knobs.Max
		take := func(b []byte) { limit = amount(b) }
		if c.in.v2 {
			if err := c.scanFile("memory.swap.max", take); err != nil {
				return err
			}
			err := c.scanFile("memory.swap.current", func(b []byte) { into.Used = count(b) })
			into.Free = math.MaxInt64
			if limit != knobs.Max {
				into.Free = max(0, int64(limit)-into.Used)
			}
			return err
		}
		if err := c.scanFile("memory.swappiness", take); err != nil {
			return err
		}
		into.Free = math.MaxInt64
		if limit == 0 {
			into.Free = 0
		}
		return c.scanFile("memory.stat", func(b []byte) { into.Used = count(field(b, "total_swap")) })
	})
}

// parseMemoryStat reads memory.stat. On v1, the fields that start with "total_" include
// descendants. The kernel separates anonymous from file refaults since Linux 5.9, and direct
// reclaim from kswapd's since 5.19.
func parseMemoryStat(text []byte, v1 bool, into *observe.ContainerMemoryCounters) {
	current, kills := into.Current, into.OOMKills
	*into = observe.ContainerMemoryCounters{Mono: into.Mono, Current: current, OOMKills: kills}
	for name, value := range numbers(text) {
		if v1 {
			whole, ok := bytes.CutPrefix(name, []byte("total_"))
			if !ok {
				continue
			}
			name = whole
		}
		switch string(name) {
		case "anon", "rss":
			into.Anon = value
		case "active_file":
			into.ActiveFile = value
		case "inactive_file":
			into.InactiveFile = value
		case "workingset_refault", "workingset_refault_anon", "workingset_refault_file":
			into.Refaults = add(into.Refaults, value)
		case "pgscan_direct":
			into.DirectScans = value
		}
	}
}

// IOBytes reads how many bytes a cgroup has read from and written to block devices. Bytes on
// stacked devices (dm, md) count on the underlying devices, too.
func (d *Driver) IOBytes(dir string, into *observe.IOCounters) error {
	if d.io == nil {
		return fmt.Errorf("%w: the io controller is not mounted", ErrUnsupported)
	}
	return d.io.with(dir, func(c *cgroup) error {
		names := []string{"blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"}
		if c.in.v2 {
			names = []string{"io.stat"}
		}
		f, temporary, err := c.openCached(names)
		if err != nil {
			return err
		}
		if temporary {
			defer f.Close() //nolint:errcheck // the file was opened for reading
		}
		return c.scan(f, func(b []byte) { into.Read, into.Written = parseIO(b) })
	})
}

// parseIO sums over the devices in v2's "8:0 rbytes=1 wbytes=2 rios=3" or v1's "8:0 Read 1" and
// "8:0 Write 2".
func parseIO(text []byte) (read, written int64) {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		_, line, _ = bytes.Cut(line, []byte(" "))
		for len(line) > 0 {
			word, rest, _ := bytes.Cut(line, []byte(" "))
			line = rest
			switch {
			case bytes.HasPrefix(word, []byte("rbytes=")):
				read = add(read, count(word[len("rbytes="):]))
			case bytes.HasPrefix(word, []byte("wbytes=")):
				written = add(written, count(word[len("wbytes="):]))
			case string(word) == "Read":
				read = add(read, count(line))
			case string(word) == "Write":
				written = add(written, count(line))
			}
		}
	}
	return read, written
}

// Threads calls take for each thread of a cgroup, without its descendants, with the thread's ID
// in this process' PID namespace. Of a container with two levels (see Nest) it takes the threads of
// both.
func (d *Driver) Threads(dir string, take func(thread int)) error {
	err := d.ownThreads(dir, take)
	if inner, _ := d.inner(dir); err == nil && inner != "" {
		if err = d.ownThreads(inner, take); errors.Is(err, ErrGone) {
			return nil // a container may remove a cgroup that it has made
		}
	}
	return err
}

func (d *Driver) ownThreads(dir string, take func(thread int)) error {
	all := func(b []byte) {
		for len(b) > 0 {
			line, rest, _ := bytes.Cut(b, []byte("\n"))
			b = rest
			if id := count(line); id > 0 { // 0: the thread is outside of the namespace
				take(int(id))
			}
		}
	}
	err := ErrUnsupported
	if d.unified != nil {
		err = d.unified.with(dir, func(c *cgroup) error { return c.scanFile("cgroup.threads", all) })
	}
	if err != nil && d.cpu != nil && !d.cpu.v2 {
		err = d.cpu.with(dir, func(c *cgroup) error {
			// The file is not kept open, for the reason given at read.
			f, err := c.folder.Open("tasks")
			if err != nil {
				return c.missing(err)
			}
			defer f.Close() //nolint:errcheck // the file was opened for reading
			return c.scan(f, all)
		})
	}
	return err
}
