package qos

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	some := workload.Some[int]
	big := mainline2()
	big.PageSize = 64 << 10
	for name, test := range map[string]struct {
		node           *Node
		class          workload.Class
		request, limit int64
		ask            workload.MemoryQoS
		want           string // min, low, high and soft limit
		notes          string
	}{
		"min and low":             {mainline2(), workload.LS, 100 * mib, 0, workload.MemoryQoS{MinPercent: some(50), LowPercent: some(100)}, "52428800 104857600  ", ""},
		"low is at least min":     {mainline2(), workload.LS, 100 * mib, 0, workload.MemoryQoS{MinPercent: some(50), LowPercent: some(10)}, "52428800 52428800  ", ""},
		"min alone":               {mainline2(), workload.LSR, 100 * mib, 0, workload.MemoryQoS{MinPercent: some(100)}, "104857600   ", ""},
		"never over the request":  {mainline2(), workload.LS, 100 * mib, 0, workload.MemoryQoS{MinPercent: some(900)}, "104857600   ", ""},
		"nothing of nothing":      {mainline2(), workload.LS, 100 * mib, 0, workload.MemoryQoS{MinPercent: some(0), LowPercent: some(0), HighPercent: some(0)}, "   ", ""},
		"an unknown request":      {mainline2(), workload.LS, 0, 0, workload.MemoryQoS{MinPercent: some(50)}, "   ", "memory-qos"},
		"high":                    {mainline2(), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{HighPercent: some(80)}, "  188743680 ", ""},
		"high in pages":           {mainline2(), workload.LS, 5000, 10000, workload.MemoryQoS{HighPercent: some(80)}, "  8192 ", ""},
		"high in large pages":     {big, workload.LS, 100 << 10, 300 << 10, workload.MemoryQoS{MinPercent: some(100), HighPercent: some(50)}, "65536  196608 ", ""},
		"high without a limit":    {mainline2(), workload.LS, 4 * gib, 0, workload.MemoryQoS{HighPercent: some(50)}, "  36507222016 ", ""},
		"high at the limit":       {mainline2(), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{HighPercent: some(100)}, "   ", ""},
		"high is at least min":    {mainline2(), workload.LS, 8192, 12288, workload.MemoryQoS{MinPercent: some(100), HighPercent: some(1)}, "8192  8192 ", ""},
		"request over limit":      {mainline2(), workload.LS, 200 * mib, 100 * mib, workload.MemoryQoS{HighPercent: some(50)}, "   ", ""},
		"high on v1":              {mainline1(), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{HighPercent: some(80)}, "   188743680", "memory-qos"},
		"min on v1":               {mainline1(), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{MinPercent: some(80)}, "   ", "memory-qos!"},
		"high before 5.9":         {oldMainline2(), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{HighPercent: some(80)}, "   ", "memory-qos!"},
		"high before 5.9, on v1":  {kernel("4.19.91-27.al7", knobs.MemoryHigh, knobs.SoftLimit), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{HighPercent: some(80)}, "   188743680", "memory-qos"},
		"high without files":      {kernel("5.10"), workload.LS, 100 * mib, 200 * mib, workload.MemoryQoS{HighPercent: some(80)}, "   ", "memory-qos!"},
		"OOM group on v1":         {mainline1(), workload.LS, 0, 0, workload.MemoryQoS{OOMGroup: workload.Some(true)}, "   ", "memory-qos!"},
		"no OOM group on v1":      {mainline1(), workload.LS, 0, 0, workload.MemoryQoS{OOMGroup: workload.Some(false)}, "   ", ""},
		"priority on mainline":    {mainline2(), workload.LS, 0, 0, workload.MemoryQoS{Priority: some(3)}, "   ", "memory-qos"},
		"priority on openEuler":   {openEuler(), workload.LS, 0, 0, workload.MemoryQoS{Priority: some(3)}, "   ", "memory-qos"},
		"BE on openEuler":         {openEuler(), workload.BE, 0, 0, workload.MemoryQoS{Priority: some(0)}, "   ", ""},
		"watermark without limit": {mainline2(), workload.LS, 0, 0, workload.MemoryQoS{WmarkRatio: some(95)}, "   ", "memory-qos"},
		"watermark off":           {mainline1(), workload.LS, 0, 0, workload.MemoryQoS{WmarkRatio: some(0)}, "   ", ""},
		"watermark on v1":         {mainline1(), workload.LS, 0, gib, workload.MemoryQoS{WmarkRatio: some(95)}, "   ", "memory-qos!"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Pod{Containers: []Container{{MemoryLimit: test.limit, Request: workload.Request{Class: test.class, Memory: test.request, Tuning: workload.Tuning{Memory: test.ask}}}}}
			got := For(test.node, p)
			var values []string
			for _, k := range []knobs.Knob{knobs.MemoryMin, knobs.MemoryLow, knobs.MemoryHigh, knobs.SoftLimit} {
				values = append(values, value(got.Containers[0], k))
			}
			if all := strings.Join(values, " "); all != test.want {
				t.Errorf("min, low, high and soft limit %q, want %q", all, test.want)
			}
			if k := keys(got.Notes[0]); k != test.notes {
				t.Errorf("notes %q, want %q: %v", k, test.notes, got.Notes[0])
			}
		})
	}
}

// TestSwap checks that only a container which asks for it, on a node with swap, is kept out of it or
// let into it.
func TestSwap(t *testing.T) {
	t.Parallel()
	never, allowed, unlimited := workload.Some(workload.SwapNever), workload.Some(workload.SwapAllowed), workload.Some(workload.SwapUnlimited)
	v1 := func() *Node { return kernel("6.18.5", knobs.Swappiness) }
	v2 := func() *Node { return kernel("6.12.9", knobs.SwapMax).v2() }
	for name, test := range map[string]struct {
		node    *Node
		without bool // the node has no swap
		ask     workload.Optional[workload.Swap]
		want    string // memory.swap.max and memory.swappiness
		notes   string
	}{
		"never":                {v2(), false, never, "0 ", ""},
		"never on v1":          {v1(), false, never, " 0", "memory-qos"},
		"never without a file": {kernel("6.12.9"), false, never, " ", "memory-qos!"},
		"never without swap":   {v2(), true, never, " ", ""},
		"neither is there":     {kernel("6.12.9"), true, never, " ", ""},
		"allowed":              {v2(), false, allowed, " ", ""},
		"allowed on v1":        {v1(), false, allowed, " ", ""},
		"unlimited":            {v2(), false, unlimited, "max ", ""},
		"unlimited on v1":      {v1(), false, unlimited, " ", ""},
		"unlimited, no swap":   {v2(), true, unlimited, " ", ""},
		"nothing asked":        {v2(), false, workload.Optional[workload.Swap]{}, " ", ""},
	} {
		test.node.Swap = !test.without
		got := For(test.node, &Pod{Containers: []Container{{Request: workload.Request{Class: workload.LS, Tuning: workload.Tuning{Memory: workload.MemoryQoS{Swap: test.ask}}}}}})
		if all := value(got.Containers[0], knobs.SwapMax) + " " + value(got.Containers[0], knobs.Swappiness); all != test.want {
			t.Errorf("%s: memory.swap.max and swappiness %q, want %q", name, all, test.want)
		}
		if k := keys(got.Notes[0]); k != test.notes {
			t.Errorf("%s: notes %q, want %q", name, k, test.notes)
		}
	}
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	some := workload.Some[int]
	n := mainline2()
	n.BEPageCachePercent = 25
	ask := workload.Tuning{Memory: workload.MemoryQoS{WmarkRatio: some(90), WmarkScale: some(1000)}}
	idle := workload.Tuning{Memory: workload.MemoryQoS{Offload: workload.Some(true)}}
	p := &Pod{Containers: []Container{
		{MemoryLimit: 1000 * 4096, Request: workload.Request{Class: workload.LS, Tuning: ask}},
		{MemoryLimit: 1000 * 4096, Request: workload.Request{Class: workload.BE}},
		{MemoryLimit: 1000 * 4096, Request: workload.Request{Class: workload.LS}},
		{Request: workload.Request{Class: workload.LS, Tuning: idle}},
	}}
	want := []Reclaim{{StartAt: 900 * 4096, Until: 800 * 4096}, {CacheMax: 250 * 4096}, {}, {Offload: true}}
	if got := For(n, p).Reclaim; !reflect.DeepEqual(got, want) {
		t.Errorf("reclaim %v, want %v", got, want)
	}
	if got := For(anolis(), p); got.Reclaim != nil || keys(got.Notes[3]) != "memory-qos!" {
		t.Errorf("reclaim %v where the kernel does it, notes %v", got.Reclaim, got.Notes)
	}
}

func TestPodMemory(t *testing.T) {
	t.Parallel()
	some := workload.Some[int]
	container := func(ratio, priority workload.Optional[int]) Container {
		return Container{Request: workload.Request{Tuning: workload.Tuning{Memory: workload.MemoryQoS{WmarkRatio: ratio, Priority: priority}}}}
	}
	for name, test := range map[string]struct {
		containers []Container
		want       string // ratio, priority and use_priority_oom of the pod
	}{
		"agreed":    {[]Container{container(some(95), some(3)), container(some(95), some(7))}, "95 7 1"},
		"disagreed": {[]Container{container(some(95), some(0)), container(some(90), workload.Optional[int]{})}, " 0 1"},
		"one":       {[]Container{container(workload.Optional[int]{}, workload.Optional[int]{}), container(some(90), some(1))}, " 1 1"},
		"none":      {[]Container{{}}, "  "},
		"empty":     {nil, "  "},
	} {
		got := For(anolis(), &Pod{Containers: test.containers}).Pod
		if all := value(got, knobs.WmarkRatio) + " " + value(got, knobs.MemPriority) + " " + value(got, knobs.PriorityOOM); all != test.want {
			t.Errorf("%s: ratio, priority and switch %q, want %q", name, all, test.want)
		}
	}
}

func TestParents(t *testing.T) {
	t.Parallel()
	least := func(n, low knobs.Bytes) []Setting {
		return []Setting{{Knob: knobs.Burst, Value: knobs.CPUBurst(7)}, {Knob: knobs.MemoryMin, Value: n}, {Knob: knobs.MemoryLow, Value: low}}
	}
	ranked := func(priority knobs.Number) []Setting {
		return []Setting{{Knob: knobs.MemPriority, Value: priority}, {Knob: knobs.PriorityOOM, Value: knobs.Number(1)}}
	}
	got := Parents([]Group{
		{"/kubepods/burstable/pod1", least(1, 10)}, {"/kubepods/burstable/pod2", least(2, 0)}, {"/kubepods/pod3", least(4, 0)},
		{"/kubepods/besteffort/pod4", ranked(1)}, {"/kubelet/kubelet-kubepods.slice/pod8", ranked(0)},
		{"/kubepods/besteffort/pod5", nil},
		{"/kubelet/kubelet-kubepods.slice/pod6", least(8, 0)},
		{"/system.slice/pod7", least(16, 0)}, {"/", least(1, 1)}, {"", least(1, 1)},
	})
	var text []string
	for _, g := range got {
		text = append(text, strings.TrimSpace(strings.Join([]string{g.Path, value(g.Settings, knobs.MemoryMin), value(g.Settings, knobs.MemoryLow), value(g.Settings, knobs.PriorityOOM)}, " ")))
	}
	want := []string{"/kubelet/kubelet-kubepods.slice 8", "/kubepods 7 10 1", "/kubepods/besteffort   1", "/kubepods/burstable 3 10"}
	if !reflect.DeepEqual(text, want) {
		t.Errorf("parents %q, want %q", text, want)
	}
	if got := Parents(nil); len(got) != 0 {
		t.Errorf("parents of nothing are %v", got)
	}
}
