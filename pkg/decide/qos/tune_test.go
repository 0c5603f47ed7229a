package qos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// value returns the value of a knob as text, or "" if it is not set.
func value(settings []Setting, k knobs.Knob) string {
	s, ok := Find(settings, k)
	switch {
	case !ok:
		return ""
	case s.Value == nil:
		return fmt.Sprint(s.Percent, "%")
	}
	return knobs.FormatValue(s.Value)
}

// keys returns the keys of a container's notes, such as "cpu-burst", or "cpu-burst!" if the kernel
// lacks it.
func keys(notes []Note) string {
	var keys []string
	for _, n := range notes {
		key := n.Key
		if n.Missing {
			key += "!"
		}
		keys = append(keys, key)
	}
	return strings.Join(keys, " ")
}

func TestBurst(t *testing.T) {
	t.Parallel()
	container := func(class workload.Class, percent int, quota knobs.CPUQuota) Container {
		return Container{Request: workload.Request{Class: class, Tuning: workload.Tuning{Burst: workload.Burst{Percent: percent}}}, Quota: quota}
	}
	none := knobs.CPUQuota{Quota: -1}
	lsr := container(workload.LSR, 100, none)
	lsr.Own = true
	auto := container(workload.LS, 0, limit(1))
	auto.Request.Burst.Auto = true
	both := container(workload.LS, 100, limit(1))
	both.Request.Burst.Auto = true
	unlimited := container(workload.LS, 0, none)
	unlimited.Request.Burst.Auto = true
	old := kernel("5.4")
	looping, oldLooping := mainline2(), kernel("5.4")
	looping.BurstLoop, oldLooping.BurstLoop = true, true
	for name, test := range map[string]struct {
		node *Node
		pod  Pod
		want string // the containers' bursts and the pod's
		note string // notes of all containers
	}{
		"acceptance, vendor":       {anolis(), Pod{Containers: []Container{container(workload.LS, 1000, limit(5)), container(workload.LS, 1000, limit(3))}}, "5000000 3000000 8000000", ""},
		"acceptance, mainline":     {mainline2(), Pod{Containers: []Container{container(workload.LS, 1000, limit(5)), container(workload.LS, 1000, limit(3))}}, "500000 300000 800000", ""},
		"half":                     {mainline1(), Pod{Containers: []Container{container(workload.LS, 50, limit(1.5))}}, "75000 75000", ""},
		"whole µs":                 {mainline1(), Pod{Containers: []Container{container(workload.LS, 33, knobs.CPUQuota{Quota: 1001 * time.Microsecond, Period: 10 * time.Millisecond})}}, "330 330", ""},
		"not asked":                {mainline1(), Pod{Containers: []Container{container(workload.LS, 0, limit(1))}}, " ", ""},
		"BE":                       {anolis(), Pod{Containers: []Container{container(workload.BE, 100, limit(1))}}, " ", ""},
		"own CPUs":                 {anolis(), Pod{Containers: []Container{lsr}}, " ", ""},
		"no quota":                 {anolis(), Pod{Containers: []Container{container(workload.LS, 100, none)}}, " ", "cpu-burst"},
		"one without a quota":      {anolis(), Pod{Containers: []Container{container(workload.LS, 100, limit(1)), container(workload.LS, 0, none)}}, "100000  ", ""},
		"one that doesn't ask":     {mainline2(), Pod{Containers: []Container{container(workload.LS, 100, limit(1)), container(workload.LS, 0, limit(1))}}, "100000  100000", ""},
		"the pod's own limit":      {mainline2(), Pod{Quota: limit(1), Containers: []Container{container(workload.LS, 100, limit(1)), container(workload.LS, 100, limit(1))}}, "100000 100000 100000", ""},
		"no file":                  {old, Pod{Containers: []Container{container(workload.LS, 100, limit(1))}}, " ", "cpu-burst!"},
		"automatic alone":          {mainline2(), Pod{Containers: []Container{auto}}, " ", "cpu-burst!"},
		"automatic too":            {mainline2(), Pod{Containers: []Container{both}}, "100000 100000", "cpu-burst"},
		"the loop raises":          {looping, Pod{Containers: []Container{auto}}, " ", ""},
		"the loop raises too":      {looping, Pod{Containers: []Container{both}}, "100000 100000", ""},
		"the loop alone, no file":  {oldLooping, Pod{Containers: []Container{both}}, " ", "cpu-burst"},
		"no limit to raise":        {looping, Pod{Containers: []Container{unlimited}}, " ", "cpu-burst"},
		"a percentage of nonsense": {anolis(), Pod{Containers: []Container{container(workload.LS, 1<<40, knobs.CPUQuota{Quota: 1 << 60, Period: time.Second})}}, " ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := For(test.node, &test.pod)
			var bursts, notes []string
			for i := range got.Containers {
				bursts = append(bursts, value(got.Containers[i], knobs.Burst))
				if k := keys(got.Notes[i]); k != "" {
					notes = append(notes, k)
				}
			}
			if all := strings.Join(append(bursts, value(got.Pod, knobs.Burst)), " "); all != test.want {
				t.Errorf("bursts %q, want %q", all, test.want)
			}
			if n := strings.Join(notes, " "); n != test.note {
				t.Errorf("notes %q, want %q", n, test.note)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	const unasked = -9
	multi := openEuler()
	multi.Features.QoSLevels = true
	crash := anolis()
	crash.Release = "4.19.91-25.5.al7.x86_64"
	for name, test := range map[string]struct {
		node  *Node
		qos   workload.QoS
		asked []int
		knob  knobs.Knob
		want  string // the containers' values and the pod's
		notes string // notes of all containers
	}{
		"bvt":                                 {anolis(), workload.BestEffort, []int{-1}, knobs.BVT, "-1 -1", ""},
		"bvt, normal":                         {anolis(), workload.Burstable, []int{0}, knobs.BVT, "0 0", ""},
		"bvt, mixed":                          {anolis(), workload.Burstable, []int{-1, 2}, knobs.BVT, "-1 2 2", ""},
		"bvt, one doesn't ask":                {anolis(), workload.Burstable, []int{-1, unasked}, knobs.BVT, "-1  0", ""},
		"bvt leaves the weight":               {anolis(), workload.Burstable, []int{-1}, knobs.Weight, " ", ""},
		"bvt that crashes":                    {crash, workload.BestEffort, []int{-1}, knobs.BVT, " ", "cpu-identity cpu-identity"},
		"bvt that crashes, the weight":        {crash, workload.BestEffort, []int{-1}, knobs.Weight, " 2", "cpu-identity cpu-identity"},
		"cpu.identity":                        {newAnolis(), workload.Burstable, []int{-1, 1, 2}, knobs.CPUIdentity, "-1 0 1 1", ""},
		"cpu.priority":                        {newAnolis(), workload.Burstable, []int{-1, 1, 0}, knobs.CPUPriority, "-1 1 0 1", ""},
		"qos_level":                           {openEuler(), workload.BestEffort, []int{-1, -1}, knobs.CPUQoS, "-1 -1 -1", ""},
		"qos_level, high":                     {openEuler(), workload.Burstable, []int{2}, knobs.CPUQoS, "0 0", "cpu-identity"},
		"qos_level, multilevel":               {multi, workload.Burstable, []int{2, 1}, knobs.CPUQoS, "2 1 2", ""},
		"cgroup.priority":                     {tencentOS(), workload.BestEffort, []int{-1, 0}, knobs.CgroupPriority, "7 0 0", ""},
		"cpu.offline stays where priority is": {tencentOS(), workload.BestEffort, []int{-1}, knobs.CPUOffline, " ", ""},
		"cpu.offline":                         {kernel("5.4", knobs.CPUOffline), workload.BestEffort, []int{-1}, knobs.CPUOffline, "1 1", ""},
		"idle":                                {mainline1(), workload.BestEffort, []int{-1, -1}, knobs.Idle, "  1", ""},
		"idle outside of the kubelet's tree":  {mainline2(), workload.UnknownQoS, []int{-1}, knobs.Idle, " 1", ""},
		"no idle where the kubelet writes":    {mainline2(), workload.Burstable, []int{-1}, knobs.Idle, " ", "cpu-identity"},
		"the weight there":                    {mainline2(), workload.Guaranteed, []int{-1}, knobs.Weight, " 2", "cpu-identity"},
		"the weight without idle":             {oldMainline2(), workload.BestEffort, []int{-1}, knobs.Weight, " 2", "cpu-identity"},
		"mixed has no idle":                   {mainline2(), workload.BestEffort, []int{-1, 0}, knobs.Idle, "  ", "cpu-identity"},
		"mixed has weights":                   {mainline2(), workload.BestEffort, []int{-1, unasked}, knobs.Weight, "2  ", "cpu-identity"},
		"normal":                              {mainline2(), workload.BestEffort, []int{0}, knobs.Weight, " ", ""},
		"high":                                {mainline2(), workload.Burstable, []int{1}, knobs.Weight, " ", "cpu-identity"},
		"highest":                             {mainline2(), workload.Burstable, []int{2}, knobs.Weight, " ", "cpu-identity!"},
		"nobody asks":                         {anolis(), workload.Burstable, []int{unasked}, knobs.BVT, " ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Pod{QoS: test.qos}
			for _, level := range test.asked {
				var c Container
				if level != unasked {
					c.Request.Identity = workload.Some(level)
				}
				p.Containers = append(p.Containers, c)
			}
			got := For(test.node, p)
			var values []string
			var notes []Note
			for i := range got.Containers {
				values = append(values, value(got.Containers[i], test.knob))
				notes = append(notes, got.Notes[i]...)
			}
			if all := strings.Join(append(values, value(got.Pod, test.knob)), " "); all != test.want {
				t.Errorf("%s %q, want %q", test.knob, all, test.want)
			}
			if k := keys(notes); k != test.notes {
				t.Errorf("notes %q, want %q", k, test.notes)
			}
		})
	}
}

// The offline groups of TencentOS have weights relative to each other, which are useless for the
// pod above them.
func TestOfflineShares(t *testing.T) {
	t.Parallel()
	low := Container{Request: workload.Request{Tuning: workload.Tuning{Identity: workload.Some(-1), Batch: workload.Batch{CPURequest: milli(500)}}}}
	for want, containers := range map[string][]Container{"512 1024": {low, low}, "512 ": {low, {}}} {
		got := For(tencentOS(), &Pod{Containers: containers})
		if all := value(got.Containers[0], knobs.BTShares) + " " + value(got.Pod, knobs.BTShares); all != want {
			t.Errorf("bt_shares %q, want %q", all, want)
		}
	}
}

func TestKernelsWithoutMemoryHigh(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{"5.8.0": true, "4.19.91-26": true, "3.10": true, "5.9": false, "5.9-rc1": false, "5.10.0": false, "6.1": false, "": false, "next": false} {
		if got := (&Node{Release: release}).before(5, 9); got != want {
			t.Errorf("%q is before 5.9: %t, want %t", release, got, want)
		}
	}
}

func TestCoreScheduling(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node    *Node
		level   workload.Optional[int]
		dropped bool
	}{
		"bvt":        {anolis(), workload.Some(2), true},
		"bvt 0":      {anolis(), workload.Some(0), false},
		"no bvt":     {anolis(), workload.Optional[int]{}, false},
		"newer":      {newAnolis(), workload.Some(-1), true},
		"qos_level":  {openEuler(), workload.Some(-1), false},
		"mainline":   {mainline2(), workload.Some(-1), false},
		"bvt of pod": {anolis(), workload.Optional[int]{}, false},
	} {
		p := &Pod{Containers: []Container{{Request: workload.Request{Tuning: workload.Tuning{CoreSched: "ns/a", Identity: test.level}}}}}
		if got := Missing(For(test.node, p).Notes[0], "core-sched"); got != test.dropped {
			t.Errorf("%s: core scheduling is dropped: %t, want %t", name, got, test.dropped)
		}
	}
	p := &Pod{Containers: []Container{
		{Request: workload.Request{Tuning: workload.Tuning{CoreSched: "ns/a"}}},
		{Request: workload.Request{Tuning: workload.Tuning{Identity: workload.Some(1)}}},
	}}
	if !Missing(For(anolis(), p).Notes[0], "core-sched") {
		t.Error("a container keeps its core-sched group though its pod has an identity")
	}
}

func TestRequired(t *testing.T) {
	t.Parallel()
	notes := []Note{{Key: "cpu-burst", Missing: true, Text: "no file"}, {Key: "io", Text: "otherwise"}, {Key: "memory-qos", Missing: true, Text: "no min"}, {Key: "memory-qos", Missing: true, Text: "no high"}}
	want := []string{
		"memory-qos is required and not to be had on this node: no min", "memory-qos is required and not to be had on this node: no high",
		"cpu-burst is required and not to be had on this node: no file",
	}
	if got := Unmet([]string{"memory-qos", "io", "cpu-burst", "rdt-class"}, notes); !slices.Equal(got, want) {
		t.Errorf("unmet are %q, want %q", got, want)
	}
	if got := Unmet(nil, notes); got != nil {
		t.Errorf("unmet are %q though nothing is required", got)
	}
}

// The pod is LS and has two containers. It requests everything, or nothing, as most pods do.
func BenchmarkFor(b *testing.B) {
	nothing := pod(workload.LS, 2)
	for i := range nothing.Containers {
		nothing.Containers[i].Request.Tuning = workload.Tuning{}
	}
	for name, p := range map[string]*Pod{"everything": pod(workload.LS, 2), "nothing": nothing} {
		b.Run(name, func(b *testing.B) {
			n := mainline2()
			b.ReportAllocs()
			for b.Loop() {
				if s := For(n, p); len(s.Containers) != 2 {
					b.Fatal("a container is missing")
				}
			}
		})
	}
}
