package reconcile

import (
	"reflect"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	setting := func(k knobs.Knob, value knobs.Value) qos.Setting { return qos.Setting{Knob: k, Value: value} }
	entry := func(original, wrote knobs.Value) journal.Entry { return journal.Entry{Value: original, Wrote: wrote} }
	burst := setting(knobs.Burst, knobs.Number(20))
	weight := setting(knobs.Weight, knobs.Shares(200))
	half := qos.Setting{Knob: knobs.Weight, Percent: 50}
	idle := setting(knobs.Idle, knobs.Number(1))
	low := setting(knobs.MemoryLow, knobs.Bytes(100))
	for name, test := range map[string]struct {
		facts facts
		want  decision
	}{
		"a first write keeps what is found": {
			facts{setting: burst, have: knobs.Number(0), without: knobs.Number(0)},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(0), original: knobs.Number(0)},
		},
		"a first write keeps what the cgroup would have without its pod's setting": {
			facts{setting: setting(knobs.CPUQoS, knobs.Number(2)), have: knobs.Number(-1), without: knobs.Number(0)},
			decision{action: write, want: knobs.Number(2), from: knobs.Number(-1), original: knobs.Number(0)},
		},
		"a first write keeps what the runtime would have set": {
			facts{setting: weight, have: knobs.Shares(200), without: knobs.Shares(200), carried: knobs.Shares(100)},
			decision{action: matching, want: knobs.Shares(200), original: knobs.Shares(100)},
		},
		"a memory protection that is the kernel's default is free": {
			facts{setting: low, have: knobs.Bytes(0), without: knobs.Bytes(0)},
			decision{action: write, want: knobs.Bytes(100), from: knobs.Bytes(0), original: knobs.Bytes(0)},
		},
		"a memory protection that somebody has set is left alone": {
			facts{setting: low, have: knobs.Bytes(7), without: knobs.Bytes(7)},
			decision{action: foreign, reason: "left alone: somebody else has set it to 7 bytes, likely the kubelet's MemoryQoS"},
		},
		"as wanted": {
			facts{setting: burst, have: knobs.Number(20), journaled: true, entry: entry(knobs.Number(0), knobs.Number(20))},
			decision{action: matching, want: knobs.Number(20)},
		},
		"something else is wanted": {
			facts{setting: burst, have: knobs.Number(10), journaled: true, entry: entry(knobs.Number(0), knobs.Number(10))},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(10)},
		},
		"a resize has changed the runtime's value": {
			facts{setting: half, have: knobs.Shares(512), journaled: true, entry: entry(knobs.Shares(1024), knobs.Shares(512)), carried: knobs.Shares(2048)},
			decision{action: write, want: knobs.Shares(1024), from: knobs.Shares(512), original: knobs.Shares(2048)},
		},
		"the same value is on its way": {
			facts{setting: low, have: knobs.Bytes(0), journaled: true, entry: entry(knobs.Bytes(0), knobs.Bytes(100)), underWay: knobs.Bytes(100)},
			decision{want: knobs.Bytes(100)},
		},
		"another value is on its way": {
			facts{setting: low, have: knobs.Bytes(0), journaled: true, entry: entry(knobs.Bytes(0), knobs.Bytes(50)), underWay: knobs.Bytes(50)},
			decision{action: write, want: knobs.Bytes(100), from: knobs.Bytes(50)},
		},
		"refused a short time ago": {
			facts{setting: burst, have: knobs.Number(0), journaled: true, entry: entry(knobs.Number(0), nil), refused: knobs.Number(20)},
			decision{want: knobs.Number(20)},
		},
		"another value was refused": {
			facts{setting: burst, have: knobs.Number(0), journaled: true, entry: entry(knobs.Number(0), nil), refused: knobs.Number(30)},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(0)},
		},
		"drift": {
			facts{setting: burst, have: knobs.Number(5), journaled: true, entry: entry(knobs.Number(0), knobs.Number(20))},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(5), drift: true},
		},
		"contested drift waits": {
			facts{setting: burst, have: knobs.Number(5), journaled: true, entry: entry(knobs.Number(0), knobs.Number(20)), contested: true},
			decision{want: knobs.Number(20)},
		},
		"an expected writer is no drift, and waits for no contest": {
			facts{setting: burst, have: knobs.Number(5), journaled: true, entry: entry(knobs.Number(0), knobs.Number(20)), expected: true, contested: true},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(5)},
		},
		"the runtime that updates the container is no drift": {
			facts{setting: burst, have: knobs.Number(5), journaled: true, entry: entry(knobs.Number(0), knobs.Number(20)), updating: true},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(5)},
		},
		"a write that failed is no drift": {
			facts{setting: burst, have: knobs.Number(5), journaled: true, entry: entry(knobs.Number(0), knobs.Number(20)), failed: true},
			decision{action: write, want: knobs.Number(20), from: knobs.Number(5)},
		},
		"the kubelet's newer weight of a pod is the original from now on": {
			facts{level: knobs.PodLevel, setting: half, have: knobs.Shares(2048), journaled: true, entry: entry(knobs.Shares(1024), knobs.Shares(512))},
			decision{action: write, want: knobs.Shares(1024), from: knobs.Shares(2048), original: knobs.Shares(2048), drift: true},
		},
		"a container's weight keeps its original": {
			facts{level: knobs.ContainerLevel, setting: half, have: knobs.Shares(2048), journaled: true, entry: entry(knobs.Shares(1024), knobs.Shares(512))},
			decision{action: write, want: knobs.Shares(512), from: knobs.Shares(2048), drift: true},
		},
		"the kubelet's weight of a QoS class is followed, however often it comes": {
			facts{level: knobs.ClassLevel, setting: half, have: knobs.Shares(2048), journaled: true, entry: entry(knobs.Shares(1024), knobs.Shares(512)), contested: true},
			decision{action: write, want: knobs.Shares(1024), from: knobs.Shares(2048), original: knobs.Shares(2048)},
		},
		"a weight that came with a resize is the original from now on": {
			facts{level: knobs.PodLevel, setting: half, have: knobs.Shares(2048), journaled: true, entry: entry(knobs.Shares(1024), knobs.Shares(512)), expected: true},
			decision{action: write, want: knobs.Shares(1024), from: knobs.Shares(2048), original: knobs.Shares(2048)},
		},
		"a weight that the resize left is not": {
			facts{level: knobs.PodLevel, setting: half, have: knobs.Shares(512), journaled: true, entry: entry(knobs.Shares(1024), knobs.Shares(512)), expected: true},
			decision{action: matching, want: knobs.Shares(512)},
		},
		"idle keeps the weight at first": {
			facts{setting: idle, have: knobs.Number(0), without: knobs.Number(0)},
			decision{action: write, want: knobs.Number(1), from: knobs.Number(0), original: knobs.Number(0), journalWeight: true},
		},
		"idle keeps the weight again after a resize": {
			facts{setting: idle, have: knobs.Number(0), journaled: true, entry: entry(knobs.Number(0), knobs.Number(1)), expected: true},
			decision{action: write, want: knobs.Number(1), from: knobs.Number(0), journalWeight: true},
		},
		"idle that lasts keeps nothing again": {
			facts{setting: idle, have: knobs.Number(1), journaled: true, entry: entry(knobs.Number(0), knobs.Number(1))},
			decision{action: matching, want: knobs.Number(1)},
		},
	} {
		test.facts.same = func(_ knobs.Knob, want, have knobs.Value) bool { return want == have }
		if got := diff(&test.facts); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setting  qos.Setting
		original knobs.Shares
		want     knobs.Value
	}{
		"a value":                           {qos.Setting{Knob: knobs.Weight, Value: knobs.Shares(300)}, 1000, knobs.Shares(300)},
		"a percentage of the original":      {qos.Setting{Knob: knobs.Weight, Percent: 50}, 1000, knobs.Shares(500)},
		"a value, raised":                   {qos.Setting{Knob: knobs.Weight, Value: knobs.Shares(300), ScalePercent: 200}, 1000, knobs.Shares(600)},
		"a percentage, raised":              {qos.Setting{Knob: knobs.Weight, Percent: 50, ScalePercent: 300}, 1000, knobs.Shares(1500)},
		"no less than the kernel's minimum": {qos.Setting{Knob: knobs.Weight, Percent: 1}, 2, knobs.Shares(2)},
	} {
		if got := Target(&test.setting, test.original, false); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
