// Package statustest has statuses of made-up nodes, for the tests of all that shows one.
package statustest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

var list = cpuset.MustParse

// Calm is a small node with a bit of everything.
func Calm() *status.Status {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	return &status.Status{
		Version: "v0.1.0",
		Time:    now,
		Mode:    "on",
		Runtime: status.Runtime{Connected: true, Name: "containerd", Version: "v2.4.0", NRIVersion: "v0.12.5", ChangedAt: now.Add(-75 * time.Minute), RecordUpdates: status.RecordUpdatesOn},
		Machine: status.Machine{
			Online: list("0-31"), Packages: 1, Nodes: 2, L3s: 4, Cores: 16, MemoryBytes: 64 << 30,
			Pinned: list("4-7,20-23"), Reserved: list("0"),
		},
		Scheduling: status.Scheduling{Requested: 9500, Allocatable: 31000, OvercommitRatio: 9.5 / 31, RoomWhy: "the pools share their CPUs"},
		Pools: []status.Pool{
			{Name: "critical", CPUs: list("1-3,8-19,24-31")},
			{Name: "online", CPUs: list("1-3,8-19,24-31"), Containers: 2, Requested: 1500},
			{Name: "batch", CPUs: list("1-3,8-19,24-31"), Containers: 1},
		},
		Containers: []status.Container{
			{
				ID: "4f1c2a9d00000000000000000000000000000000000000000000000000000001", PodUID: "1", Ref: "data/db-0/main", Class: workload.LSE,
				State: placement.Held, Controlled: true, Requested: 8000, CPUs: list("4-7,20-23"), Mems: list("0"), Unlimited: true,
				Why: "LSE with CPUs of its own", Cgroup: "/kubepods/pod1/4f1c2a9d", Drift: 2,
				Keys: []workload.RequestKey{
					{Key: "class", Value: "LSE", Source: "annotation class.sluice.dev/pod"},
					{Key: "cpus", Value: "8", Source: "the CPU request"},
				},
			},
			{
				ID: "4f1c2a9d00000000000000000000000000000000000000000000000000000002", PodUID: "1", Ref: "data/db-0/proxy", Class: workload.LS, Pool: "online",
				State: placement.Held, Controlled: true, Requested: 500, CPUs: list("1-3,8-19,24-31"), Why: "LS in pool online", Cgroup: "/kubepods/pod1/4f1c2a9e",
				Keys: []workload.RequestKey{{Key: "class", Value: "LS", Source: "annotation class.sluice.dev/container.proxy"}},
				Settings: []status.Setting{
					{Level: "container", Knob: "cpu.burst", File: "cpu.cfs_burst_us", Value: "50ms a period", Why: "cpu-burst 50 % of 1 CPUs", Drift: 7, Contested: true},
					{Level: "container", Knob: "memory.high", Value: "1073741824 bytes", Why: "memory-qos highPercent 80", Problem: "left alone: somebody else has set it to 512 bytes"},
					{Level: "pod", Knob: "cpu.burst", File: "cpu.cfs_burst_us", Value: "50ms a period", Why: "sum of its containers' bursts"},
				},
				Lacks: []status.Lack{
					{Key: "cpu-identity", Missing: true, Text: "this kernel keeps no SMT siblings free"},
					{Key: "memory-qos", Text: "reclaimed by Sluice: this kernel has no memory.wmark_ratio"},
				},
				Cache: []observe.L3{{ID: 0, OccupancyBytes: 6 << 20, TotalBytes: 3 << 30, LocalBytes: -1}},
			},
			{
				ID: "5000000000000000000000000000000000000000000000000000000000000003", PodUID: "2", Ref: "data/db-1/main", Class: workload.LSR, Pool: "online",
				State: placement.Reserved, Controlled: true, Requested: 1000, CPUs: list("1-3,8-19,24-31"),
				Why:      "LSR in pool online; 1 of 24 are free to pin",
				Warnings: []string{"container data/db-1/main: annotation numa.sluice.dev \x1b[2J has no effect on class LSR"},
			},
			{
				ID: "6000000000000000000000000000000000000000000000000000000000000004", PodUID: "3", Ref: "batch/db-0/main", Class: workload.BE, Tier: new(workload.TierFree), Pool: "batch",
				State: placement.Held, Why: "BE in pool batch",
			},
		},
		Counters: status.Counters{Placed: 4, Refused: 1, Drift: 2},
	}
}

// Troubled is a node on which little works.
func Troubled() *status.Status {
	s := Calm()
	s.Mode, s.Why = "preview", "koordlet: keep koordlet off this node (its DaemonSet's node selector), or tell Sluice in its config to write beside it"
	s.Runtime = status.Runtime{ChangedAt: s.Time.Add(-26 * time.Hour)}
	s.Machine.Offline, s.Machine.System, s.Machine.External, s.Machine.Pinned = list("30-31"), list("1"), list("8-9"), cpuset.Set{}
	s.Machine.Steering = status.Steering{CPUs: list("4-7"), Skipped: 3}
	s.Containers = nil
	s.Neighbours = []peers.Neighbour{{Kind: peers.Koordlet, Evidence: "process 312 is a privileged koordlet",
		Response: "Sluice starts in preview: it decides and reports, and writes nothing", Fix: "keep koordlet off this node"}}
	s.Config.Problem = "it does not fit this machine: system: CPU 99 is not online"
	s.Config.Parts = []status.ConfigPart{
		{Name: "canary", Problem: "control.mode: this node does not allow parts to set it; add it to 'sluice run --fleet-keys', or remove it from the part"},
		{Name: "large", Keys: []string{"pools.list"}, Problem: "its earlier text stays in force, because without it a pin would move"},
	}
	s.Contested = []string{"cpu.burst of data/db-0/proxy"}
	s.Counters = status.Counters{Placed: 1, Panics: 1, WriteErrors: 2, RecordUpdates: 9, RecordUpdateFailures: 3, Reconnects: 1}
	return s
}

// Huge is a node of 512 CPUs with the longest names and the most broken sets.
func Huge() *status.Status {
	s := Troubled()
	var even, odd cpuset.Set
	for cpu := 0; cpu < 512; cpu += 2 {
		even.Add(cpu)
		odd.Add(cpu + 1)
	}
	s.Version = "v0.0.0-20261121120000-0123456789ab+dirty"
	s.Machine = status.Machine{Online: even, Offline: odd, Packages: 8, Nodes: 32, L3s: 64, Cores: 256, MemoryBytes: 24 << 40, Pinned: even, Reserved: odd, System: even, External: odd}
	s.Scheduling = status.Scheduling{Requested: 6 * 123456789, Allocatable: 256000, OvercommitRatio: 2893.5, Room: new(workload.MilliCPU(123456789))}
	s.Pools = nil
	for i := range 16 {
		s.Pools = append(s.Pools, status.Pool{Name: strings.Repeat("p", 62) + fmt.Sprint(i%10), CPUs: even, Containers: 12345, Requested: 1234567})
	}
	name := func(length int) string { return strings.Repeat("name-", length/5) + strings.Repeat("x", length%5) }
	for i, class := range []workload.Class{workload.LSE, workload.LSR, workload.LS, workload.BE, workload.System, workload.Unclassified} {
		s.Containers = append(s.Containers, status.Container{
			ID: fmt.Sprintf("%064d", i), Ref: name(63) + "/" + name(253) + "/" + strings.Repeat("c", 63), Class: class, Pool: s.Pools[0].Name,
			Requested: 123456789, CPUs: odd, Mems: even, Drift: 1234567, Unlimited: true,
			Why: "because " + strings.Repeat("y", 300), Cgroup: "/kubepods.slice/" + strings.Repeat("z", 300),
			Keys:     []workload.RequestKey{{Key: strings.Repeat("k", 100), Value: strings.Repeat("v", 200), Source: strings.Repeat("s", 300)}},
			Warnings: []string{strings.Repeat("w", 500), "a warning of several words, " + strings.Repeat("and more ", 30)},
		})
	}
	return s
}
