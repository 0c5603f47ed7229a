package statustest

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Looped is the calm node with a loop that has a bit of everything to tell.
func Looped() *status.Status {
	s := Calm()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local) // as texts tell it
	s.Runtime.ChangedAt, s.Time = noon.Add(-75*time.Minute), noon
	at := s.Time.Add(-100 * time.Millisecond)
	decided := func(ago time.Duration, mode control.Mode, d control.Decision) status.Decision {
		return status.Decision{Time: s.Time.Add(-ago), Mode: mode, Decision: d}
	}
	decisions := []status.Decision{
		decided(9*time.Minute, control.On, control.Decision{Controller: "pools", Object: "pool online", Action: "grow", From: "8 CPUs", To: "12 CPUs", Why: "load 82% is over its band 45-60%"}),
		decided(8*time.Minute, control.On, control.Decision{Controller: "burst", Object: "data/db-0/proxy", Action: "raise", From: "1", To: "1.2", Why: "throttled in 3 of 10 periods while the share pool is at 20%",
			Facts: []control.Fact{{Name: "limit_cpus", Value: 1}}}),
		decided(2*time.Minute, control.On, control.Decision{Controller: "windows", Object: "node", Action: "close", From: "open", To: "close", Why: "batch is switched off"}),
		decided(time.Minute, control.Preview, control.Decision{Controller: "eviction", Object: "batch/db-0", Action: "evict", Why: "memory \x1b[2J is short"}),
	}
	s.Config.Parts = []status.ConfigPart{
		{Name: "base", Keys: []string{"pools.list", "control.burst.maxPercent", "control.offer.cpuMarginPercent"}},
		{Name: "night", Keys: []string{"control.windows"}},
	}
	s.Pools[1].RCFRatio = 0.92
	s.Scheduling.Room, s.Scheduling.RoomWhy = new(workload.MilliCPU(4000)), ""
	s.Pools[1].Load = &status.PoolLoad{MeasuredAt: at, Usage: 12340, SizeCPUs: 23, LoadFraction: 12.34 / 23, PressureFraction: 0.02, BandLowPercent: 45, BandHighPercent: 60, WantedCPUs: 24, ShortCPUs: 1}
	s.Pools[2].Load = &status.PoolLoad{MeasuredAt: at, Usage: 2000, SizeCPUs: 2, LoadFraction: 1, BandLowPercent: 50, BandHighPercent: 80, WantedCPUs: 2, Small: true}
	s.Containers[1].Usage = &status.Usage{
		CPU:      status.CPUUsage{MeasuredAt: at, Usage: 740, Limit: 1000, LoopLimit: 1200, ThrottledFraction: 0.3},
		Memory:   status.MemoryUsage{MeasuredAt: at, WorkingSetBytes: 900 << 20, CurrentBytes: 1 << 30, RequestedBytes: 1 << 30, OOMKills: 1},
		Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: 0.12},
	}
	s.Loop = &status.Loop{
		Mode: control.On, MeasuredAt: at, Interval: time.Second, StateDir: "/nonexistent/sluice",
		Controllers: []status.Controller{
			{Name: "windows", Mode: control.On, Last: &decisions[2]}, {Name: "pools", Mode: control.Off}, {Name: "batch", Mode: control.On}, {Name: "eviction", Mode: control.Preview, Last: &decisions[3]},
		},
		Node: status.NodeUsage{
			CPU: status.CPUUsage{MeasuredAt: at, Usage: 20160, Limit: 31000}, Memory: status.NodeMemory{MeasuredAt: at, TotalBytes: 64 << 30, AvailableBytes: 20 << 30},
			Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: 0.031},
		},
		Batch: status.Batch{
			State: status.BatchClosed, Why: "batch is switched off", BoundsPercent: 49, BoundsWhy: "data/db-0 waits 13 % of its time (cpuPressure), and its bound is 5 %", NextChangeAt: s.Time.Add(2 * time.Hour), Switch: status.Switch{State: "off", EndsAt: s.Time.Add(2 * time.Hour)},
			Mechanism: "quota", Known: true, Budget: 6543, Floor: 310, Used: 5210, Requested: 8000, Cgroups: []status.BatchCgroup{{Name: "/kubepods/besteffort", Quota: 6543, MemoryLimitBytes: 16 << 30}},
		},
		Memory: status.BatchMemory{OnlineBytes: 20 << 30, UsedBytes: 14 << 30, GoalBytes: 16 << 30, HeadroomBytes: 3 << 30, LimitBytes: 16 << 30, SwapBytes: 2 << 30, Taken: status.Taken{PageCacheBytes: 5 << 30, SwapBytes: 3 << 30}},
		Egress: &status.Egress{
			Devices: []string{"eth0"}, Speed: 10e9, Sent: 6.5e9, BatchSent: 2.4e9, Room: 4.4e9, MeasuredAt: at,
			Pods: []status.PodEgress{{Pod: "batch/db-0", UID: "3", Sent: 2.4e9, Limit: 4e9}, {Pod: "batch/host", UID: "4", Problem: "it is on the host's network, where Sluice limits nothing"}},
		},
		Refusal:   &status.Refusal{NewBatch: true, Why: "batch is switched off", PodUIDs: []string{"3"}},
		Evictions: status.Evictions{By: control.EvictReport, Reported: 1},
		HostApplications: []status.HostApplication{{
			Name: "yarn", Cgroup: "/hadoop-yarn", Used: control.Amount{CPU: 1200, MemoryBytes: 3 << 30}, Quota: 2100, MemoryLimitBytes: 9 << 30,
			Offer: control.Amount{CPU: 3500, MemoryBytes: 4 << 30}, VCores: 3, MemoryMB: 4096, File: "/run/sluice-offers/yarn.json",
		}, {
			Name: "backup", Cgroup: "/system.slice/backup.service", Problem: "its cgroup does not exist (in the CPU controller's hierarchy)",
		}},
		Offer: control.Offer{Known: true, ShortTerm: control.Amount{CPU: 7000, MemoryBytes: 8 << 30}, LongTerm: control.Amount{CPU: 3500, MemoryBytes: 4 << 30}, FreeCPUs: []int{3, 4}},
		Forecasts: []control.PeakForecast{
			{Object: "node", Resource: "cpu", Soon: control.Amount{CPU: 21400}, Day: control.Amount{CPU: 28600}, Method: "profile", ConfidenceFraction: 0.97, Trusted: true, LastHourForecast: control.Amount{CPU: 22500}, LastHourPeak: control.Amount{CPU: 20900}},
			{Object: "node", Resource: "memory", Soon: control.Amount{MemoryBytes: 22 << 30}, Day: control.Amount{MemoryBytes: 24 << 30}, Method: "period", ConfidenceFraction: 0.99, Trusted: true, LastHourForecast: control.Amount{MemoryBytes: 22 << 30}, LastHourPeak: control.Amount{MemoryBytes: 21 << 30}},
			{Object: "pool " + s.Pools[1].Name, Resource: "cpu", Soon: control.Amount{CPU: 15000}, Day: control.Amount{CPU: 19000}, Method: "histogram"},
			{Object: "workload shop/web", Resource: "cpu", Soon: control.Amount{CPU: 400}, Day: control.Amount{CPU: 500}, Method: "histogram", ConfidenceFraction: 1, Trusted: true, Requested: control.Amount{CPU: 4000}},
		},
		Notices: status.Notices{
			Active: &control.Notice{Kind: control.NoticeSqueeze, Cause: control.NoticeBySwitch, BeginsAt: noon.Add(-2 * time.Minute), EndsAt: noon.Add(2 * time.Hour), Why: "batch is switched off"},
			Counts: control.NoticeCounts{Given: 3, Kept: 2, False: 1},
		},
		Benefit: control.BenefitReport{Day: control.Day{CPUHours: 83.25, GiBHours: 120, UtilizationFraction: 0.61, KnownHours: 24}, SatisfactionFraction: 0.93},
		Disturbed: []control.Disturbance{{
			Bounds: []control.Bound{
				{Kind: "cpuPressure", BoundFraction: 0.05, WaitingFraction: 0.13, Measured: true, BrokenAt: at.Add(-time.Minute)},
				{Kind: "ioPressure", BoundFraction: 0.1, WaitingFraction: 0.2, Measured: true, BrokenAt: at.Add(-time.Hour), Alone: true},
				{Kind: "runDelay", BoundFraction: 0.1, WaitingFraction: 0.07},
			},
			Objective: &control.Objective{
				Metric: "http_request_duration_seconds", QuantileFraction: 0.99, BoundSeconds: 0.02, Seconds: 0.0317, Requests: 2150, Slow: 130,
				Measured: true, BrokenAt: at.Add(-20 * time.Second), Problem: "connection refused",
			},
			Cycles: &control.Cycles{MeasuredAt: at, PerInstructionRatio: 2.1, UsualRatio: 1.2, LimitRatio: 1.32, Learned: true, Outliers: 3},
			Ref:    "data/db-0", Learned: true, Calm: control.Strain{CPUFraction: 0.02}, Excess: control.Strain{CPUFraction: 0.11, RunDelayFraction: 0.05},
			Suspects: []control.Suspect{{Ref: "batch/db-0", UsageFraction: 0.8}},
		}},
		Advice:              []control.Advice{{Object: "data/db-0/proxy", Text: "it is throttled often: raise its CPU limit from 1 to 1.2"}, {Object: "data/db-1", Text: "asks for 1 CPU and used 0.1 at most in the last hour"}},
		Decisions:           decisions,
		Counts:              []status.Count{{Decided: status.Decided{Controller: "pools", Action: "grow", Mode: control.On}, Count: 1}},
		DroppedAuditEntries: 2,
		Failures:            []status.Failure{{What: "memory of containers", Count: 3}},
	}
	return s
}

// Selling is the calm node with a loop that acts, has measured at this time, and offers 7 CPUs to batch work.
func Selling(now time.Time) *status.Status {
	s := Looped()
	l := s.Loop
	s.Time, l.MeasuredAt = now, now
	l.Controllers = []status.Controller{{Name: "batch", Mode: control.On}, {Name: "memory", Mode: control.On}}
	l.Batch.State, l.Batch.Why, l.Batch.Switch, l.Refusal = status.BatchOpen, "", status.Switch{}, nil
	l.Batch.BoundsPercent, l.Batch.BoundsWhy = 0, ""
	return s
}

// HugeLoop is the huge node with the longest texts of a loop.
func HugeLoop() *status.Status {
	s := Huge()
	s.Loop = Looped().Loop
	long := strings.Repeat("word ", 60) + strings.Repeat("x", 200)
	pod := strings.Join(strings.SplitN(s.Containers[0].Ref, "/", 3)[:2], "/")
	for i := range s.Pools {
		s.Pools[i].RCFRatio = 9999
		s.Pools[i].Load = &status.PoolLoad{MeasuredAt: s.Time, Usage: 123456789, SizeCPUs: 12345, LoadFraction: 99, BandLowPercent: 45, BandHighPercent: 60, WantedCPUs: 54321, ShortCPUs: 54321, Small: true}
	}
	for i := range s.Containers {
		s.Containers[i].Usage = Looped().Containers[1].Usage
	}
	s.Config.Parts = []status.ConfigPart{{Name: strings.Repeat("p", 253), Keys: []string{"pools.list", "control.burst", "control.windows", "control.batch"}, Problem: long}}
	l := s.Loop
	l.Batch.ThresholdWhy, l.Notices.Active.Why = long, long
	l.Problem, l.Batch.Why, l.Refusal.Why, l.Offer.Why = long, long, long, long
	l.Disturbed[0].Ref, l.Disturbed[0].Suspects[0].Ref = pod, long
	for i := range l.Forecasts {
		f := &l.Forecasts[i]
		huge := control.Amount{CPU: 123456789, MemoryBytes: 123456789}
		f.Object, f.Soon, f.Day, f.LastHourForecast, f.LastHourPeak = "pool "+s.Pools[0].Name, huge, huge, huge, huge
	}
	l.Advice = nil
	for range 10 {
		l.Advice = append(l.Advice, control.Advice{Object: s.Containers[0].Ref, Text: long})
		l.Decisions = append(l.Decisions, status.Decision{Time: s.Time, Mode: control.Preview, Decision: control.Decision{Controller: "pools", Object: pod, Action: "grow", From: long, To: long, Why: long}})
	}
	return s
}
