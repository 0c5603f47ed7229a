package qos

import (
	"maps"
	"testing"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// With the scheduler BFQ, a kernel has two files of weights. The kernel refuses the weight of a single
// disk in the file that the disk doesn't heed.
func TestWeightsOfBothSchedulers(t *testing.T) {
	t.Parallel()
	const text = "default 20\n8:0 50"
	disk := []string{"8:0"}
	for name, test := range map[string]struct {
		has  []knobs.Knob
		cost []string // disks with io.cost
		want map[knobs.Knob]string
	}{
		"io.cost alone":           {[]knobs.Knob{knobs.IOWeight}, nil, map[knobs.Knob]string{knobs.IOWeight: text}},
		"bfq alone":               {[]knobs.Knob{knobs.BFQWeight}, nil, map[knobs.Knob]string{knobs.BFQWeight: text}},
		"both":                    {[]knobs.Knob{knobs.IOWeight, knobs.BFQWeight}, nil, map[knobs.Knob]string{knobs.IOWeight: "default 20", knobs.BFQWeight: text}},
		"both, and io.cost is on": {[]knobs.Knob{knobs.IOWeight, knobs.BFQWeight}, disk, map[knobs.Knob]string{knobs.IOWeight: text, knobs.BFQWeight: "default 20"}},
		"io.cost is on elsewhere": {[]knobs.Knob{knobs.IOWeight, knobs.BFQWeight}, []string{"8:16"}, map[knobs.Knob]string{knobs.IOWeight: "default 20", knobs.BFQWeight: text}},
		"none":                    {nil, nil, map[knobs.Knob]string{}},
	} {
		node := Node{Disks: disk, CostDisks: test.cost}
		for _, k := range test.has {
			node.Features.Knobs[k] = knobs.Feature{State: knobs.Supported, V2: true}
		}
		request := workload.Request{Class: workload.BE}
		request.IO.Weight = workload.Some(20)
		request.IO.Devices = []workload.DeviceIO{{Device: "8:0", Weight: workload.Some(50)}}
		got := For(&node, &Pod{Containers: []Container{{Request: request}}})
		for _, settings := range [][]Setting{got.Containers[0], got.Pod} {
			weights := map[knobs.Knob]string{}
			for _, s := range settings {
				weights[s.Knob] = knobs.FormatValue(s.Value)
			}
			if !maps.Equal(weights, test.want) {
				t.Errorf("%s: %v, want %v", name, weights, test.want)
			}
		}
		if missing := Missing(got.Notes[0], ioKey); missing != (len(test.has) == 0) {
			t.Errorf("%s: missing is %v", name, missing)
		}
	}
}

func TestClassWeights(t *testing.T) {
	t.Parallel()
	node := Node{}
	node.Features.Knobs[knobs.IOWeight] = knobs.Feature{State: knobs.Supported, V2: true}
	for name, test := range map[string]struct {
		pods map[string]int
		want map[string]string
	}{
		"the highest":          {map[string]int{"/kubepods/besteffort/a": 10, "/kubepods/besteffort/b": 20, "/kubepods/burstable/c": 100}, map[string]string{"/kubepods/besteffort": "default 20"}},
		"one without a weight": {map[string]int{"/kubepods/besteffort/a": 10, "/kubepods/besteffort/b": 100}, nil},
		"never a higher one":   {map[string]int{"/kubepods/burstable/a": 500}, nil},
		"Guaranteed pods":      {map[string]int{"/kubepods/a": 10}, nil},
		"outside of kubepods":  {map[string]int{"/machine.slice/vm/a": 10}, nil},
		"slices, and a prefix": {map[string]int{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/a": 10}, map[string]string{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice": "default 10"}},
		"no pod":               {nil, nil},
	} {
		pods := map[string]knobs.Weights{}
		for path, weight := range test.pods {
			pods[path] = knobs.Weights{Default: weight}
		}
		got := map[string]string{}
		for _, g := range ClassWeights(&node, pods) {
			if len(g.Settings) != 1 || g.Settings[0].Knob != knobs.IOWeight {
				t.Errorf("%s: %+v", name, g)
			}
			got[g.Path] = knobs.FormatValue(g.Settings[0].Value)
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestIOClass(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		has      bool
		priority workload.IOPriority
		want     knobs.Value
		note     bool
	}{
		"idle":         {true, workload.IOIdle, knobs.IdleIO, false},
		"no such file": {false, workload.IOIdle, nil, true},
		"normal":       {true, workload.IONormal, nil, false},
		"none":         {false, workload.IOUnset, nil, false},
	} {
		node := Node{}
		if test.has {
			node.Features.Knobs[knobs.IOClass] = knobs.Feature{State: knobs.Supported, V2: true}
		}
		request := workload.Request{Class: workload.BE}
		request.IO.Priority = test.priority
		got := For(&node, &Pod{Containers: []Container{{Request: request}}})
		s, _ := Find(got.Containers[0], knobs.IOClass)
		if s.Value != test.want || len(got.Pod) > 0 {
			t.Errorf("%s: %v, pod %v; want %v", name, s.Value, got.Pod, test.want)
		}
		if noted := len(got.Notes[0]) > 0; noted != test.note || Missing(got.Notes[0], ioKey) {
			t.Errorf("%s: notes %v", name, got.Notes[0])
		}
	}
}
