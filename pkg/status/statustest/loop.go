package statustest

import (
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Looped is the calm node with a loop that has a bit of everything to tell.
func Looped() *status.Status {
	s := Calm()
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local) // as texts tell it
	s.Runtime.Since, s.Time = noon.Add(-75*time.Minute), noon
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
	s.Pools[1].RCF = 0.92
	s.Pools[1].Load = &status.PoolLoad{At: at, Usage: 12340, Size: 23, Load: 12.34 / 23, Pressure: 0.02, Low: 45, High: 60, Wanted: 24, Short: 1}
	s.Pools[2].Load = &status.PoolLoad{At: at, Usage: 2000, Size: 2, Load: 1, Low: 50, High: 80, Wanted: 2, Small: true}
	s.Containers[1].Usage = &status.Usage{
		CPU:      status.CPUUsage{At: at, Usage: 740, Limit: 1000, LoopLimit: 1200, Throttled: 0.3},
		Memory:   status.MemoryUsage{At: at, WorkingSet: 900 << 20, Current: 1 << 30, Request: 1 << 30, OOMKills: 1},
		Pressure: status.PressureUsage{At: at, CPU: 0.12},
	}
	s.Loop = &status.Loop{
		Mode: control.On, Time: at, Interval: time.Second, StateDir: "/nonexistent/sluice",
		Controllers: []status.Controller{
			{Name: "windows", Mode: control.On, Last: &decisions[2]}, {Name: "pools", Mode: control.Off}, {Name: "batch", Mode: control.On}, {Name: "eviction", Mode: control.Preview, Last: &decisions[3]},
		},
		Node: status.NodeUsage{
			CPU: status.CPUUsage{At: at, Usage: 20160, Limit: 31000}, Memory: status.NodeMemory{At: at, Total: 64 << 30, Available: 20 << 30},
			Pressure: status.PressureUsage{At: at, CPU: 0.031},
		},
		Batch: status.Batch{
			State: status.BatchClosed, Why: "batch is switched off", Next: s.Time.Add(2 * time.Hour), Switch: status.Switch{To: "off", Until: s.Time.Add(2 * time.Hour)},
			Mechanism: "quota", Known: true, Budget: 6543, Floor: 310, Used: 5210, Requested: 8000, Boxes: []status.Box{{Name: "/kubepods/besteffort", Quota: 6543, Memory: 16 << 30}},
		},
		Memory:    status.BatchMemory{Online: 20 << 30, Held: 14 << 30, Goal: 16 << 30, Headroom: 3 << 30, Limit: 16 << 30},
		Refusal:   &status.Refusal{NewBatch: true, Why: "batch is switched off", Pods: []string{"3"}},
		Evictions: status.Evictions{By: control.EvictReport, Told: 1},
		Offer:     control.Offer{Known: true, Short: control.Amount{CPU: 7000, Memory: 8 << 30}, Long: control.Amount{CPU: 3500, Memory: 4 << 30}, FreeCPUs: []int{3, 4}},
		Benefit:   control.BenefitReport{Day: control.Day{CPUHours: 83.25, GiBHours: 120, Utilization: 0.61, KnownHours: 24}, Satisfaction: 0.93},
		Disturbed: []control.Disturbance{{
			Ref: "data/db-0", Learned: true, Calm: control.Strain{CPU: 0.02}, Excess: control.Strain{CPU: 0.11, RunDelay: 0.05},
			Suspects: []control.Suspect{{Ref: "batch/db-0", Share: 0.8}},
		}},
		Advice:    []control.Advice{{Object: "data/db-0/proxy", Text: "it is throttled often: raise its CPU limit from 1 to 1.2"}, {Object: "data/db-1", Text: "asks for 1 CPU and used 0.1 at most in the last hour"}},
		Decisions: decisions,
		Counts:    []status.Count{{Decided: status.Decided{Controller: "pools", Action: "grow", Mode: control.On}, N: 1}},
		Dropped:   2,
		Failures:  []status.Failure{{What: "memory of containers", Count: 3}},
	}
	return s
}

// HugeLoop is the huge node with the longest texts of a loop.
func HugeLoop() *status.Status {
	s := Huge()
	s.Loop = Looped().Loop
	long := strings.Repeat("word ", 60) + strings.Repeat("x", 200)
	pod := strings.Join(strings.SplitN(s.Containers[0].Ref, "/", 3)[:2], "/")
	for i := range s.Pools {
		s.Pools[i].RCF = 9999
		s.Pools[i].Load = &status.PoolLoad{At: s.Time, Usage: 123456789, Size: 12345, Load: 99, Low: 45, High: 60, Wanted: 54321, Short: 54321, Small: true}
	}
	for i := range s.Containers {
		s.Containers[i].Usage = Looped().Containers[1].Usage
	}
	l := s.Loop
	l.Problem, l.Batch.Why, l.Refusal.Why, l.Offer.Why = long, long, long, long
	l.Disturbed[0].Ref, l.Disturbed[0].Suspects[0].Ref = pod, long
	l.Advice = nil
	for range 10 {
		l.Advice = append(l.Advice, control.Advice{Object: s.Containers[0].Ref, Text: long})
		l.Decisions = append(l.Decisions, status.Decision{Time: s.Time, Mode: control.Preview, Decision: control.Decision{Controller: "pools", Object: pod, Action: "grow", From: long, To: long, Why: long}})
	}
	return s
}
