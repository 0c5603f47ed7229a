package qos

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func milli(n int64) workload.Optional[workload.MilliCPU] {
	return workload.Some(workload.MilliCPU(n))
}

func TestBatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		container Container
		ask       workload.Batch
		want      grant
	}{
		"acceptance":               {Container{}, workload.Batch{CPURequest: milli(1000)}, grant{Shares: 1024, Quota: limit(1)}},
		"a limit":                  {Container{}, workload.Batch{CPURequest: milli(500), CPULimit: milli(2000)}, grant{Shares: 512, Quota: limit(2)}},
		"unlimited":                {Container{}, workload.Batch{CPURequest: milli(500), CPULimit: milli(-1)}, grant{Shares: 512}},
		"the least":                {Container{}, workload.Batch{CPURequest: milli(1)}, grant{Shares: 2, Quota: limit(0.01)}},
		"the most":                 {Container{}, workload.Batch{CPURequest: milli(1 << 62)}, grant{Shares: 262144, Quota: limit(1e6)}},
		"none":                     {Container{}, workload.Batch{CPURequest: milli(0)}, grant{Shares: 2}},
		"memory":                   {Container{}, workload.Batch{MemoryLimit: workload.Some[int64](gib + 1)}, grant{MemoryLimit: gib}},
		"below the kubelet's":      {Container{Quota: limit(2), MemoryLimit: 2 * gib}, workload.Batch{CPURequest: milli(1000), MemoryLimit: workload.Some[int64](gib)}, grant{Shares: 1024, Quota: limit(1), MemoryLimit: gib}},
		"not above the kubelet's":  {Container{Quota: limit(1), MemoryLimit: gib}, workload.Batch{CPURequest: milli(2000), MemoryLimit: workload.Some[int64](2 * gib)}, grant{Shares: 2048}},
		"another period":           {Container{Quota: knobs.CPUQuota{Quota: 15 * time.Millisecond, Period: 10 * time.Millisecond}}, workload.Batch{CPURequest: milli(1000)}, grant{Shares: 1024, Quota: limit(1)}},
		"a container with own CPU": {Container{Own: true}, workload.Batch{CPURequest: milli(1000)}, grant{Shares: 1024}},
		"nothing":                  {Container{}, workload.Batch{}, grant{}},
	} {
		test.container.Request.Batch = test.ask
		if got := grantOf(mainline2(), &test.container); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestPodBatch(t *testing.T) {
	t.Parallel()
	grant := func(cpu, memory int64) Container {
		return Container{Request: workload.Request{Class: workload.BE, Tuning: workload.Tuning{Batch: workload.Batch{CPURequest: milli(cpu), MemoryLimit: workload.Some(memory)}}}}
	}
	weighted := grant(1000, gib)
	weighted.Request.Weight = 50
	pooled := Container{Request: workload.Request{Tuning: workload.Tuning{Weight: 150}}}
	for name, test := range map[string]struct {
		containers []Container
		want       string // weight, quota and memory of the pod
		quota      knobs.CPUQuota
	}{
		"sums":                 {[]Container{grant(1000, gib), grant(333, gib)}, "1364 133300 100000 2147483648", knobs.CPUQuota{}},
		"one has no limit":     {[]Container{grant(1000, gib), {}}, "1024  ", knobs.CPUQuota{}},
		"one has the kubelet":  {[]Container{grant(1000, gib), {Quota: limit(1), MemoryLimit: gib}}, "1024 200000 100000 2147483648", knobs.CPUQuota{}},
		"a pool's weight":      {[]Container{weighted}, "512 100000 100000 1073741824", knobs.CPUQuota{}},
		"a pool's weight only": {[]Container{pooled, {}}, "150%  ", knobs.CPUQuota{}},
		"nothing":              {[]Container{{}}, "  ", knobs.CPUQuota{}},
		"the pod's own limit":  {[]Container{grant(1000, gib), grant(1000, gib)}, "2048  2147483648", limit(1)},
	} {
		got := For(mainline2(), &Pod{QoS: workload.BestEffort, Quota: test.quota, Containers: test.containers}).Pod
		if all := strings.Join([]string{value(got, knobs.Weight), value(got, knobs.Quota), value(got, knobs.MemoryMax)}, " "); all != test.want {
			t.Errorf("%s: weight, quota and memory %q, want %q", name, all, test.want)
		}
	}
}

// Beside a kubelet that takes weights for requests, weights fall at most.
func TestKeptWeight(t *testing.T) {
	t.Parallel()
	for percent, want := range map[int]string{0: "", 50: "50%", 100: "", 1000: ""} {
		pod := Pod{QoS: workload.Burstable, KeepWeight: true, Containers: []Container{{Request: workload.Request{Tuning: workload.Tuning{Weight: percent}}}}}
		all := For(mainline2(), &pod)
		if got := value(all.Pod, knobs.Weight); got != want || (len(all.Notes[0]) > 0) != (percent > 100) {
			t.Errorf("%d %%: %q, %v", percent, got, all.Notes[0])
		}
	}
	grant := Container{Request: workload.Request{Class: workload.BE, Tuning: workload.Tuning{Batch: workload.Batch{CPURequest: milli(3000)}}}}
	all := For(oldMainline2(), &Pod{QoS: workload.BestEffort, KeepWeight: true, Containers: []Container{grant}})
	if got := value(all.Pod, knobs.Weight); got != "" {
		t.Errorf("a grant makes the pod's weight %s", got)
	}
}

func TestIO(t *testing.T) {
	t.Parallel()
	some := workload.Some[int]
	read := func(bps int64) workload.IOLimits { return workload.IOLimits{ReadBPS: bps} }
	diskless := mainline2()
	diskless.Disks = nil
	for name, test := range map[string]struct {
		node  *Node
		ask   []workload.IO
		want  string // the first container's weight and throttles, and the pod's weight
		notes string // notes of the first container
	}{
		"nothing":                {mainline2(), []workload.IO{{}}, "||", ""},
		"a weight":               {mainline2(), []workload.IO{{Weight: some(200)}}, "default 200||default 200", ""},
		"the default weight":     {mainline2(), []workload.IO{{Weight: some(100)}}, "||", ""},
		"beside a default":       {mainline2(), []workload.IO{{Weight: some(50)}, {}}, "default 50||", ""},
		"weights by device":      {mainline2(), []workload.IO{{Devices: []workload.DeviceIO{{Device: "8:16", Weight: some(7)}}}, {Weight: some(50)}}, "8:16 7||8:16 50", ""},
		"limits of every disk":   {mainline2(), []workload.IO{{Limits: read(5)}}, "|8:0 rbps=5\n8:16 rbps=5|", ""},
		"limits by name":         {mainline2(), []workload.IO{{Limits: read(5), Devices: []workload.DeviceIO{{Device: "/dev/sda", Limits: workload.IOLimits{WriteIOPS: 9}}}}}, "|8:0 wiops=9\n8:16 rbps=5|", ""},
		"a disk without a limit": {mainline2(), []workload.IO{{Limits: read(5), Devices: []workload.DeviceIO{{Device: "8:0"}}}}, "|8:16 rbps=5|", ""},
		"unknown devices":        {mainline2(), []workload.IO{{Devices: []workload.DeviceIO{{Device: "/dev/sdz", Limits: read(5)}, {Device: "9:0", Limits: read(5)}}}}, "||", "io! io!"},
		"no disk":                {diskless, []workload.IO{{Limits: read(5)}}, "||", "io!"},
		"buffered writes on v1":  {mainline1(), []workload.IO{{Limits: workload.IOLimits{WriteBPS: 5}}}, "|8:0 wbps=5\n8:16 wbps=5|", "io"},
		"no files":               {&Node{Disks: []string{"8:0"}}, []workload.IO{{Weight: some(50), Limits: read(5)}}, "||", "io! io!"},
	} {
		p := &Pod{}
		for _, io := range test.ask {
			p.Containers = append(p.Containers, Container{Request: workload.Request{Tuning: workload.Tuning{IO: io}}})
		}
		got := For(test.node, p)
		first := got.Containers[0]
		if all := strings.Join([]string{value(first, knobs.IOWeight), value(first, knobs.IOMax), value(got.Pod, knobs.IOWeight)}, "|"); all != test.want {
			t.Errorf("%s: weight, throttles, pod's weight %q, want %q", name, all, test.want)
		}
		if k := keys(got.Notes[0]); k != test.notes {
			t.Errorf("%s: notes %q, want %q", name, k, test.notes)
		}
	}
}

// On kernels that weigh batch pods, a pod's weight follows its tier and its grant.
func TestTierWeights(t *testing.T) {
	t.Parallel()
	of := func(class workload.Class, tier workload.Tier, grant int64) Container {
		return Container{Request: workload.Request{Class: class, Tuning: workload.Tuning{Tier: workload.Some(tier), Identity: workload.Some(-1),
			Batch: workload.Batch{CPURequest: workload.Optional[workload.MilliCPU]{Value: workload.MilliCPU(grant), Set: grant > 0}}}}}
	}
	for name, c := range map[string]struct {
		node       *Node
		containers []Container
		want       string
	}{
		"batch":                  {oldMainline2(), []Container{of(workload.BE, workload.TierBatch, 1000)}, "1024"},
		"mid":                    {oldMainline2(), []Container{of(workload.BE, workload.TierMid, 1000)}, "4096"},
		"free":                   {oldMainline2(), []Container{of(workload.BE, workload.TierFree, 1000)}, "102"},
		"the highest counts":     {oldMainline2(), []Container{of(workload.BE, workload.TierFree, 1000), of(workload.BE, workload.TierMid, 1000)}, "8192"},
		"not of a service's pod": {oldMainline2(), []Container{of(workload.LS, workload.TierBatch, 0), of(workload.BE, workload.TierMid, 1000)}, "1024"},
		"idle pods have none":    {mainline2(), []Container{of(workload.BE, workload.TierMid, 1000)}, ""},
		"mid without a grant":    {anolis(), []Container{of(workload.BE, workload.TierMid, 0)}, "400%"},
		"free without a grant":   {anolis(), []Container{of(workload.BE, workload.TierFree, 0)}, "10%"},
		"an ended pod":           {anolis(), nil, ""},
		"batch without a grant":  {anolis(), []Container{of(workload.BE, workload.TierBatch, 0)}, ""},
	} {
		got := For(c.node, &Pod{QoS: workload.BestEffort, Containers: c.containers}).Pod
		if value := value(got, knobs.Weight); value != c.want {
			t.Errorf("%s: %q, want %q", name, value, c.want)
		}
	}
}
