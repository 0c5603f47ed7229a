package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text+"\n" != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got:\n%s", file, text)
	}
}

func machine(t testing.TB, text string) *topology.Machine {
	t.Helper()
	m, err := synth.Machine(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// These are the machines of the golden frames.
const (
	small  = "2 cores"
	middle = "2 packages 2 nodes 8 cores 2 threads"
	large  = "2 packages 4 nodes 32 cores 2 threads l3 8 cores"
)

// scene returns a node with everything: pins, exclusive pools with bands, squeezed batch work, a
// disturbed pod, advice and decisions.
func scene(t testing.TB, text string, containers int) State {
	t.Helper()
	m := machine(t, text)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &status.Status{
		Version: "v0.4.0", Time: now, Mode: "on",
		Runtime: status.Runtime{Connected: true, Name: "containerd", Version: "v2.4.0", ChangedAt: now.Add(-75 * time.Minute), RecordUpdates: status.RecordUpdatesOn},
		Machine: status.Machine{Online: m.Online, Offline: m.Offline, Packages: len(m.Packages), Nodes: len(m.Nodes), L3s: len(m.L3s), Cores: len(m.Cores), MemoryBytes: 256 << 30},
	}
	lse, lsr := divide(s, m)
	at := now.Add(-100 * time.Millisecond)
	s.Loop = loop(m, at)
	for i := range s.Pools {
		p := &s.Pools[i]
		size := p.CPUs.Size()
		load := []float64{0.31, 0.72, 0.97}[i%3]
		p.RCFRatio = []float64{0.62, 0.85, 0}[i%3]
		p.Load = &status.PoolLoad{MeasuredAt: at, Usage: workload.MilliCPU(load * float64(size) * 1000), SizeCPUs: size, LoadFraction: load, PressureFraction: 0.04 * float64(i), BandLowPercent: 45, BandHighPercent: 60, WantedCPUs: size}
	}
	if len(s.Pools) > 1 {
		s.Pools[1].Load.WantedCPUs, s.Pools[1].Load.ShortCPUs = s.Pools[1].Load.SizeCPUs+2, 2
	}
	classes := []workload.Class{workload.LSE, workload.LSR, workload.LS, workload.BE, workload.LS, workload.BE}
	for i := range containers {
		c := status.Container{
			ID: fmt.Sprintf("%064d", i), Ref: fmt.Sprintf("shop/cart-7d9f8c6b54-%05d/main", i*7919%100000), Class: classes[i%len(classes)], State: placement.Held, Controlled: true,
			Usage: &status.Usage{
				CPU:      status.CPUUsage{MeasuredAt: at, Usage: workload.MilliCPU(4000 / (i + 1)), Limit: 4000},
				Memory:   status.MemoryUsage{MeasuredAt: at, WorkingSetBytes: int64(i*37%100+1) * 41 << 20},
				Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: float64(i%13) / 100},
			},
		}
		switch c.Class {
		case workload.LSE:
			c.CPUs = lse
		case workload.LSR:
			c.CPUs = lsr
		default:
			p := &s.Pools[map[bool]int{true: 2, false: i / 6 % 2}[c.Class == workload.BE]]
			c.Pool, c.CPUs = p.Name, p.CPUs
			p.Containers++
		}
		if c.Class == workload.BE {
			c.Tier = new([]workload.Tier{workload.TierBatch, workload.TierFree, workload.TierMid}[i/2%3])
		}
		if i%11 == 4 {
			c.Usage.CPU.ThrottledFraction = 0.3
		}
		s.Containers = append(s.Containers, c)
	}
	if containers > 2 {
		s.Containers[2].Ref = "data/db-0/main"
	}
	return State{Status: s, Machine: m}
}

// divide assigns the machine's CPUs to pins, the system and pools.
func divide(s *status.Status, m *topology.Machine) (lse, lsr cpuset.Set) {
	if len(m.Cores) < 8 {
		s.Pools = []status.Pool{{Name: "critical", CPUs: m.Online}, {Name: "online", CPUs: m.Online}, {Name: "batch", CPUs: m.Online}}
		return lse, lsr
	}
	s.Machine.Reserved = m.Cores[0].CPUs
	s.Machine.System = m.Cores[1].CPUs
	s.Pools = []status.Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}
	for i := 2; i < len(m.Cores); i++ {
		cpus := m.Cores[i].CPUs
		switch of := len(m.Cores); {
		case i < of/8:
			lse = cpuset.Union(lse, cpus)
		case i < of/6:
			lsr = cpuset.Union(lsr, cpus)
		case i < of/3:
			s.Pools[0].CPUs = cpuset.Union(s.Pools[0].CPUs, cpus)
		case i < of*3/4:
			s.Pools[1].CPUs = cpuset.Union(s.Pools[1].CPUs, cpus)
		default:
			s.Pools[2].CPUs = cpuset.Union(s.Pools[2].CPUs, cpus)
		}
	}
	s.Machine.Pinned = cpuset.Union(lse, lsr)
	return lse, lsr
}

func loop(m *topology.Machine, at time.Time) *status.Loop {
	decided := func(ago time.Duration, mode control.Mode, d control.Decision) status.Decision {
		return status.Decision{Time: at.Add(-ago).Truncate(time.Second), Mode: mode, Decision: d}
	}
	l := &status.Loop{
		Mode: control.On, MeasuredAt: at, Interval: time.Second,
		Node: status.NodeUsage{
			CPU:      status.CPUUsage{MeasuredAt: at, Usage: workload.MilliCPU(m.Online.Size() * 640), Limit: workload.MilliCPU(m.Online.Size() * 980)},
			Memory:   status.NodeMemory{MeasuredAt: at, TotalBytes: 256 << 30, AvailableBytes: 91 << 30},
			Pressure: status.PressureUsage{MeasuredAt: at, CPUFraction: 0.12, IOFraction: 0.01},
		},
		Batch: status.Batch{State: status.BatchSqueezed, Why: "the window 08:00-20:00 squeezes batch to 50%", Mechanism: "pools", Known: true,
			Budget: workload.MilliCPU(m.Online.Size() * 250), Used: workload.MilliCPU(m.Online.Size() * 210), Floor: 310},
		Memory: status.BatchMemory{UsedBytes: 14 << 30, GoalBytes: 16 << 30},
		Egress: &status.Egress{Speed: 10e9, Sent: 6.5e9, BatchSent: 2.4e9, Room: 4.4e9},
		Disturbed: []control.Disturbance{{Ref: "data/db-0", Learned: true, Excess: control.Strain{CPUFraction: 0.11, RunDelayFraction: 0.05},
			Bounds:   []control.Bound{{Kind: control.BoundCPU, BoundFraction: 0.05, WaitingFraction: 0.13, Measured: true, BrokenAt: at}, {Kind: control.BoundIO, BoundFraction: 0.1, WaitingFraction: 0.02, Measured: true}},
			Suspects: []control.Suspect{{Ref: "batch/report-1", UsageFraction: 0.8}}}},
		Advice: []control.Advice{
			{Object: "data/db-0/main", Text: "it is throttled often: raise its CPU limit from 4 to 5"},
			{Object: "shop/cart", Text: "asks for 8 CPUs and used 0.4 at most in the last hour"},
		},
		Decisions: []status.Decision{
			decided(9*time.Minute, control.On, control.Decision{Controller: "pools", Object: "pool online", Action: "grow", From: "8 CPUs", To: "12 CPUs", Why: "load 82% is over its band 45-60%"}),
			decided(8*time.Minute, control.On, control.Decision{Controller: "windows", Object: "node", Action: "squeeze", To: "50%", Why: "the window 08:00-20:00"}),
			decided(time.Minute, control.Preview, control.Decision{Controller: "eviction", Object: "batch/report-1", Action: "evict", Why: "memory \x1b[2J is short"}),
		},
	}
	for cpu := range m.Online.Last() + 1 {
		load := -1.0
		if m.Online.Contains(cpu) {
			load = float64(cpu * 37 % 101)
		}
		l.Node.CPULoadPercent = append(l.Node.CPULoadPercent, load)
	}
	return l
}
