package fakekernel

import (
	"fmt"
	"strings"
)

// Counters holds what a cgroup and those below it have used, in the kernel's units.
type Counters struct {
	CPU                int64 // in nanoseconds
	Periods, Throttled int64
	ThrottledTime      int64 // in nanoseconds
	Refaults           int64
	DirectScans        int64 // cgroup v2 only
	OOMKills           int64
	Swapped            int64    // in bytes
	Read, Written      int64    // in bytes
	Stalls             [5]int64 // in µs: CPU, memory some and full, I/O some and full
	Threads            []int
}

// Count sets the counters of a cgroup.
func (k *Kernel) Count(dir string, c Counters) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.trees {
		if g := t.at(dir); g != nil {
			g.counters = c
		}
	}
}

// usageFiles adds the files with counters. Only cgroup v2 has those of pressure.
func (f Flavour) usageFiles(all map[string]file, controller string) {
	show := func(text func(c *Counters) string) file {
		return file{root: true, show: func(g *group) string { return text(&g.counters) }}
	}
	threads := show(func(c *Counters) string {
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(c.Threads), "[]"), " ", "\n")
	})
	switch {
	case f.V2 && controller == "cpu":
		all["cgroup.threads"] = threads
		all["cpu.stat"] = show(func(c *Counters) string {
			return fmt.Sprintf("usage_usec %d\nuser_usec 0\nsystem_usec 0\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d", c.CPU/1000, c.Periods, c.Throttled, c.ThrottledTime/1000)
		})
		for i, name := range []string{"cpu", "memory", "io"} {
			all[name+".pressure"] = show(func(c *Counters) string {
				full := int64(0)
				if i > 0 {
					full = c.Stalls[2*i]
				}
				return fmt.Sprintf("some avg10=1.50 avg60=0.70 avg300=0.10 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=%d", c.Stalls[max(0, 2*i-1)], full)
			})
		}
	case f.V2 && controller == "memory":
		all["memory.events"] = show(func(c *Counters) string {
			return fmt.Sprintf("low 0\nhigh 0\nmax 3\noom 2\noom_kill %d\noom_group_kill 0", c.OOMKills)
		})
	case f.V2 && controller == "io":
		all["io.stat"] = show(func(c *Counters) string {
			return fmt.Sprintf("8:0 rbytes=%d wbytes=0 rios=5 wios=6 dbytes=7 dios=8\n8:16 rbytes=0 wbytes=%d rios=0 wios=0 dbytes=0 dios=0", c.Read, c.Written)
		})
	case controller == "cpuacct":
		all["cpuacct.usage"] = show(func(c *Counters) string { return fmt.Sprint(c.CPU) })
	case controller == "cpu":
		all["tasks"] = threads
		all["cpu.stat"] = show(func(c *Counters) string {
			return fmt.Sprintf("nr_periods %d\nnr_throttled %d\nthrottled_time %d", c.Periods, c.Throttled, c.ThrottledTime)
		})
	case controller == "memory":
		all["memory.oom_control"] = show(func(c *Counters) string {
			return fmt.Sprintf("oom_kill_disable 0\nunder_oom 0\noom_kill %d", c.OOMKills)
		})
	case controller == "blkio":
		all["blkio.throttle.io_service_bytes_recursive"] = show(func(c *Counters) string {
			return fmt.Sprintf("8:0 Read %d\n8:0 Write 0\n8:0 Sync 1\n8:0 Total 1\n8:16 Read 0\n8:16 Write %d\n8:16 Total 1\nTotal 5", c.Read, c.Written)
		})
	}
}
