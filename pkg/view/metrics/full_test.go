package metrics

import (
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// fixed is a source that always gives the same answer.
type fixed struct {
	s   *status.Status
	err error
}

func (f fixed) Status() (*status.Status, error) { return f.s, f.err }

func now() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// full returns a status with all of its parts, so that each metric has a sample.
func full() *status.Status {
	at := now()
	counts := make([]uint64, len(status.LatencyBounds())+1)
	counts[0], counts[2], counts[len(counts)-1] = 90, 9, 1
	return &status.Status{
		Schema: status.Schema, Version: "v1.2.3", Build: status.Build{Version: "v1.2.3", Revision: "abc", Go: "go1.26"},
		StartedAt: at.Add(-time.Hour), Time: at, Mode: "on",
		Config:     status.Config{File: "/etc/sluice/sluice.yaml", Hash: "0123456789abcdef", LoadedAt: at.Add(-time.Minute), Reloads: 4, Refused: 1, Problem: "line 1: no"},
		Runtime:    status.Runtime{Connected: true, Name: "containerd", Version: "v2.4.0", NRIVersion: "v0.12.5", RecordUpdates: status.RecordUpdatesOn},
		Machine:    status.Machine{Online: cpuset.Range(0, 15), Offline: cpuset.Of(16), Pinned: cpuset.Range(4, 5), Reserved: cpuset.Of(0)},
		Scheduling: status.Scheduling{Requested: 10000, Allocatable: 15000, OvercommitRatio: 10.0 / 15, Room: new(workload.MilliCPU(3000))},
		Pools: []status.Pool{
			{Name: "online", CPUs: cpuset.Range(1, 9), Containers: 2, Requested: 6000, RCFRatio: 1.5, Load: &status.PoolLoad{
				MeasuredAt: at, Usage: 4500, SizeCPUs: 9, LoadFraction: 0.5, PressureFraction: 0.04, BandLowPercent: 45, BandHighPercent: 60, WantedCPUs: 10, ShortCPUs: 1, Small: true,
			}},
			{Name: "batch", CPUs: cpuset.Range(10, 15), Containers: 1, Requested: 2000, RCFRatio: 3},
		},
		Containers: []status.Container{
			someone("shop/db-0/main", workload.LS, 4000, &status.Usage{
				CPU:      status.CPUUsage{MeasuredAt: at, Usage: 3000, Limit: 4000, LoopLimit: 6000, ThrottledFraction: 0.25},
				Memory:   status.MemoryUsage{MeasuredAt: at, WorkingSetBytes: 3 << 30, CurrentBytes: 4 << 30, RequestedBytes: 2 << 30, OOMKills: 1},
				Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: 0.2, MemoryFraction: 0.1, IOFraction: 0.05}, WaitingThreads: 0.75,
			}),
			someone("shop/web-0/main", workload.LS, 2000, nil),
			someone("jobs/sort-1/main", workload.BE, 2000, &status.Usage{
				CPU:    status.CPUUsage{MeasuredAt: at, Usage: 1500, LoopLimit: 1000},
				Memory: status.MemoryUsage{MeasuredAt: at, WorkingSetBytes: 1 << 30},
			}),
		},
		Contested: []string{"cpu.burst of shop/db-0/main"},
		Counters:  status.Counters{Placed: 12, Refused: 2, Resized: 3, Drift: 5, Panics: 1, WriteErrors: 7, RecordUpdates: 9, RecordUpdateFailures: 1, Reconnects: 2},
		Features:  []status.Feature{{Name: "cpu.burst", State: "supported"}, {Name: "cpu.idle", State: "unsupported"}, {Name: "io.cost", State: "inconclusive"}},
		Handlers:  []status.Handler{{Event: "CreateContainer", Counts: counts, Sum: 3 * time.Second}},
		Errors:    []status.KnobErrors{{Knob: "cpu.quota", Errno: "EINVAL", Count: 7}},
		Loop:      fullLoop(at),
	}
}

func someone(ref string, class workload.Class, requested workload.MilliCPU, usage *status.Usage) status.Container {
	return status.Container{
		ID: "id of " + ref, Ref: ref, Class: class, Pool: "online", Requested: requested, CPUs: cpuset.Range(1, 9), Drift: 1, Usage: usage,
		Settings: []status.Setting{{Level: "container", Knob: "cpu.burst", Drift: 2, Problem: "EINVAL"}, {Level: "pod", Knob: "cpu.quota", Drift: 4}},
	}
}

func fullLoop(at time.Time) *status.Loop {
	decided := func(controller, action, cause string, n int) status.Count {
		return status.Count{Decided: status.Decided{Controller: controller, Action: action, Cause: cause, Mode: control.On}, Count: n}
	}
	return &status.Loop{
		Mode: control.On, Problem: "no PSI", MeasuredAt: at, Interval: time.Second,
		Controllers: []status.Controller{{Name: "pools", Mode: control.On}, {Name: "memory", Mode: control.Preview}},
		Node: status.NodeUsage{
			CPU: status.CPUUsage{MeasuredAt: at, Usage: 9000, Limit: 15000}, Memory: status.NodeMemory{MeasuredAt: at, TotalBytes: 64 << 30, AvailableBytes: 20 << 30, FreeBytes: 4 << 30, DirectReclaimPagesPerSecond: 3},
			Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: 0.3, MemoryFraction: 0.02, IOFraction: 0.01}, StealCPUs: 0.5, LoadAverage: 17, DiskUsedFraction: 0.6,
		},
		Egress: &status.Egress{Devices: []string{"eth0"}, Speed: 10e9, Sent: 6e9, BatchSent: 2e9, Room: 4e9, Pods: []status.PodEgress{{Pod: "jobs/sort-1", Problem: "it is on the host's network"}}},
		Batch: status.Batch{
			State: status.BatchSqueezed, Mechanism: "quota", Known: true, Budget: 3000, Floor: 200, Used: 1500, Requested: 2000,
			Cgroups: []status.BatchCgroup{{Name: "kubepods/besteffort", Quota: 3000, MemoryLimitBytes: 8 << 30}},
		},
		Memory:    status.BatchMemory{OnlineBytes: 30 << 30, UsedBytes: 5 << 30, GoalBytes: 8 << 30, HeadroomBytes: 2 << 30, WantedLimitBytes: 7 << 30, LimitBytes: 8 << 30},
		Refusal:   &status.Refusal{NewBatch: true, PodUIDs: []string{"uid"}},
		Evictions: status.Evictions{By: control.EvictCRI, Evicted: 3, Failed: 1, Reported: 2},
		HostApplications: []status.HostApplication{{
			Name: "yarn", Cgroup: "/hadoop-yarn", Used: control.Amount{CPU: 1200, MemoryBytes: 3 << 30}, Quota: 2100, MemoryLimitBytes: 9 << 30,
			Offer: control.Amount{CPU: 3500, MemoryBytes: 4 << 30}, VCores: 3, MemoryMB: 4096, File: "/run/sluice-offers/yarn.json",
		}, {
			Name: "backup", Cgroup: "/system.slice/backup.service", Problem: "its cgroup does not exist (in the CPU controller's hierarchy)",
		}},
		Offer: control.Offer{Known: true, ShortTerm: control.Amount{CPU: 7000, MemoryBytes: 8 << 30}, LongTerm: control.Amount{CPU: 3500, MemoryBytes: 4 << 30}, FreeCPUs: []int{3, 4}},
		Forecasts: []control.PeakForecast{
			{Object: "node", Resource: "cpu", Soon: control.Amount{CPU: 9500}, Day: control.Amount{CPU: 12000}, Method: "profile", ConfidenceFraction: 0.97, Trusted: true, LastHourForecast: control.Amount{CPU: 10000}, LastHourPeak: control.Amount{CPU: 9100}},
			{Object: "workload shop/web", Resource: "cpu", Soon: control.Amount{CPU: 400}, Day: control.Amount{CPU: 500}, Method: "histogram", ConfidenceFraction: 1, Trusted: true, Requested: control.Amount{CPU: 4000}},
			{Object: "node", Resource: "memory", Soon: control.Amount{MemoryBytes: 30 << 30}, Day: control.Amount{MemoryBytes: 32 << 30}, Method: "histogram", ConfidenceFraction: 0.75, LastHourForecast: control.Amount{MemoryBytes: 30 << 30}, LastHourPeak: control.Amount{MemoryBytes: 31 << 30}},
		},
		Notices: status.Notices{Active: &control.Notice{Kind: control.NoticeSqueeze, Cause: control.NoticeByForecast}, Counts: control.NoticeCounts{Given: 5, Kept: 3, False: 1}},
		Benefit: control.BenefitReport{CPUHours: 700, GiBHours: 9, RunCPUHours: 100, RunGiBHours: 2, Day: control.Day{UtilizationFraction: 0.61, KnownHours: 23, Squeezes: 4, Evicted: 3}, SatisfactionFraction: 0.93},
		Disturbed: []control.Disturbance{
			{Ref: "shop/db-0", Learned: true, Calm: control.Strain{CPUFraction: 0.02, ThrottledFraction: 0.1}, Excess: control.Strain{CPUFraction: 0.12, RunDelayFraction: 0.05},
				Cycles:    &control.Cycles{MeasuredAt: at, PerInstructionRatio: 2.1, UsualRatio: 1.2, LimitRatio: 1.32, Learned: true, Outliers: 3},
				Objective: &control.Objective{Metric: "seconds", BoundSeconds: 0.02, Seconds: 0.03, BrokenAt: at},
				Bounds:    []control.Bound{{Kind: "cpuPressure", BoundFraction: 0.05, WaitingFraction: 0.14, Measured: true, BrokenAt: at}, {Kind: "runDelay", BoundFraction: 0.1, WaitingFraction: 0.05, Measured: true}}},
			{Ref: "shop/web-0", Calm: control.Strain{CPUFraction: 0.04}, Excess: control.Strain{CPUFraction: 0.02, ThrottledFraction: 0.5}},
		},
		Advice: []control.Advice{{Object: "shop/db-0/main", Text: "raise its limit"}},
		Counts: []status.Count{
			decided("pools", "grow", "", 8), decided("windows", "squeeze to 30%", "", 2), decided("windows", "squeeze to 40%", "", 1),
			decided("demotion", "demote", "online", 5), decided("eviction", "evict", "node-memory", 3),
		},
		DroppedAuditEntries: 2, Failures: []status.Failure{{What: "memory of containers", Count: 3}},
	}
}

// busy returns the full status with that many containers.
func busy(containers int) *status.Status {
	s := full()
	like := s.Containers[0]
	s.Containers = nil
	s.Loop.Disturbed = nil
	for i := range containers {
		c, usage := like, *like.Usage
		c.ID, c.Ref, c.Usage = strconv.Itoa(i), "shop/pod-"+strconv.Itoa(i)+"/main", &usage
		s.Containers = append(s.Containers, c)
		s.Loop.Disturbed = append(s.Loop.Disturbed, control.Disturbance{Ref: "shop/pod-" + strconv.Itoa(i), Learned: true})
	}
	return s
}
