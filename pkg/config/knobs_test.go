package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

func TestParseKnobs(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(`
pools:
  list:
  - {name: gold, set: {cpu-identity: 2, io: {weight: 300, devices: {"8:0": {weight: 1}}}}}
  - {name: rest}
classes:
  LS: {rdt-class: be, memory-qos: "{lowPercent: 100}"}
  BE: {}
classify:
- namespaces: [a]
  set: {weight: 50%, memory-qos: {oomGroup: true}}
rdt:
  classes:
    be: {partition: low, l3: "0-30%, 1=0x7f", mb: "20%, 1=5000MBps"}
    cdp: {l3code: 0x3, l3data: 10-100%, l2: 0-50%}
    all:
  partitions: {low: {l3: 0-60%, mb: 80%}}
  perPod: true
  monitor: true
memory: {globalWatermark: auto, bePageCachePercent: 20}
cpuNormalization: {ratio: 1.25}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	gold := given("cpu-identity", "2", "io", `{weight: 300, devices: {"8:0": {weight: 1}}}`)
	want.Pools.List = []Pool{{Name: "gold", Set: gold}, {Name: "rest"}}
	want.Rules.Pools, want.DefaultPool, want.PoolSets = []string{"gold", "rest"}, "gold", map[string]annotation.Set{"gold": gold}
	want.Classes.LS, want.Classes.BE = given("rdt-class", "be", "memory-qos", "{lowPercent: 100}"), given()
	want.Classify = []annotation.Classification{{Match: annotation.Match{Namespaces: []string{"a"}}, Set: given("weight", "50%", "memory-qos", "{oomGroup: true}")}}
	want.RDT.Classes = map[string]RDTClass{
		"be": {Partition: "low", RDTShare: RDTShare{
			L3: Cache{All: schemata.Range{From: 0, To: 30}, ByID: map[int]schemata.Range{1: {Mask: 0x7f}}},
			MB: Bandwidth{All: schemata.Bandwidth{Percent: 20}, ByID: map[int]schemata.Bandwidth{1: {MBps: 5000}}},
		}},
		"cdp": {RDTShare: RDTShare{L3Code: Cache{All: schemata.Range{Mask: 3}}, L3Data: Cache{All: schemata.Range{From: 10, To: 100}}, L2: Cache{All: schemata.Range{From: 0, To: 50}}}},
		"all": {},
	}
	want.RDT.Partitions = map[string]RDTShare{"low": {L3: Cache{All: schemata.Range{To: 60}}, MB: Bandwidth{All: schemata.Bandwidth{Percent: 80}}}}
	want.RDT.PerPod, want.RDT.Monitor = true, true
	want.RDTClasses, want.RDTPerPod = []string{"all", "be", "cdp"}, true
	want.CPUNormalization.Ratio = 125
	want.Memory = Memory{GlobalWatermark: WatermarkAuto, BEPageCachePercent: 20}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// By default, Sluice changes nothing for pods that ask for nothing.
func TestDefaultAsksForNothing(t *testing.T) {
	t.Parallel()
	for _, parent := range []string{"/kubepods/pod1", "/kubepods/burstable/pod1", "/kubepods/besteffort/pod1", "/system.slice/x", ""} {
		pod := &workload.Pod{CgroupParent: parent}
		r, warnings, err := Default().Request(annotation.Facts{ThreadsPerCore: 2}, pod, &workload.Container{Resources: workload.Resources{Shares: 1024, Quota: 100000, Period: 100000}})
		if err != nil || len(warnings) > 0 || !reflect.DeepEqual(r.Tuning, workload.Tuning{}) {
			t.Errorf("%q: %+v, %v, %v", parent, r.Tuning, warnings, err)
		}
	}
}

// With rdt off, pods get no group.
func TestRDTOff(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte("rdt: {mode: off, perPod: true, classes: {be: {}}}\nclasses: {BE: {rdt-class: be}}"))
	if err != nil || c.RDTPerPod || c.RDT.Mode != RDTOff {
		t.Errorf("%+v, %v", c, err)
	}
}

// want is the whole error, with all mistakes in the order of their lines.
func TestKnobErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a class's name":            {"classes:\n  Be: {}", "line 2: classes.Be: is not a key that Sluice knows; did you mean BE?"},
		"a class's typo":            {"classes:\n  BE:\n    cpu-identiy: 2", `line 3: classes.BE.cpu-identiy: "2": is not a key that Sluice knows; did you mean cpu-identity?`},
		"a class's value":           {"classes:\n  BE:\n    cpu-identity: 3", `line 3: classes.BE.cpu-identity: "3": must be a whole number, -1 to 2`},
		"a part's typo":             {"classes:\n  BE:\n    memory-qos: {wmarkRation: 1}", `line 3: classes.BE.memory-qos: "{wmarkRation: 1}": there is no "wmarkRation" in it; did you mean wmarkRatio?`},
		"a class of a class":        {"classes: {BE: {class: LS}}", "line 1: classes.BE.class: \"LS\": is not a class's to give"},
		"a pool of a class":         {"classes: {BE: {pool: batch}}", "is not a class's to give"},
		"no effect on a class":      {"classes: {LSR: {cpu-burst: 100%}}", "classes.LSR.cpu-burst: \"100%\": has no effect on class LSR"},
		"a pin for LS":              {"classes: {LS: {smt: full-core}}", "has no effect on class LS"},
		"BE never evicted":          {"classes: {BE: {evict: never}}", "never is not for class BE"},
		"a key twice":               {"classes:\n  LS: {weight: 50%,\n   weight: 60%}", "line 3: classes.LS.weight: is there twice"},
		"a list":                    {"classes:\n  LS: {weight: [50%]}", "line 2: classes.LS.weight: must be one value, or keys with values"},
		"no mapping":                {"classes:\n  LS: high", "line 2: classes.LS: must be keys with values"},
		"no such RDT class":         {"classes:\n  LS: {rdt-class: be}", "line 2: classes.LS.rdt-class: \"be\": is no RDT class of this node, which has none"},
		"another RDT class":         {"rdt: {classes: {a: , b: }}\nclassify: [{set: {rdt-class: be}}]", "line 2: classify[0].set.rdt-class: \"be\": is no RDT class of this node, which has a, b"},
		"a dialect's key":           {"classes: {BE: {batch-resources: 1}}", "is not a key that Sluice knows; the keys are class"},
		"a pool's memory":           {"pools:\n  list:\n  - name: a\n    set: {memory-qos: {}}", "line 4: pools.list[0].set.memory-qos: \"{}\": is not a pool's to give; a pool gives cpu-identity, weight"},
		"a pool's weight":           {"pools: {list: [{name: a, set: {weight: 0%}}]}", "must be a share of the weight that the kubelet gives, 1% to 10000%"},
		"a pool's score":            {"pools: {list: [{name: a, set: {oom-score: 1001}}]}", "must be a whole number, -1000 to 1000"},
		"a pool's packets":          {"pools: {list: [{name: a, set: {net-class: '10:'}}]}", "must be a class as tc writes it (10:1)"},
		"only mistakes":             {"classify: [{set: {claas: BE}}]", "did you mean class?"},
		"nothing at all":            {"classify: [{set: {}}]", "classify[0]: sets nothing"},
		"an RDT mode":               {"rdt: {mode: maybe}", `rdt.mode: "maybe": must be on or off`},
		"an RDT class's name":       {"rdt:\n  classes:\n    B E: {}", "line 3: rdt.classes.B E: must be 1 to 63 small letters"},
		"the kernel's name":         {"rdt: {classes: {info: {}}}", "not info, which is the kernel's"},
		"an RDT typo":               {"rdt:\n  classes:\n    be: {L3: 0-30%}", "line 3: rdt.classes.be.L3: is not a key that Sluice knows; did you mean l3?"},
		"an RDT class twice":        {"rdt:\n  classes:\n    be: {}\n    be: {}", "line 4: rdt.classes.be: is there twice"},
		"RDT classes in a list":     {"rdt: {classes: [be]}", "rdt.classes: must be keys with values"},
		"a range turned round":      {"rdt:\n  classes:\n    be:\n      l3: 30-0%", `line 4: rdt.classes.be.l3: "30-0%": is no part of a cache`},
		"a range beyond":            {"rdt: {classes: {be: {l3: 0-101%}}}", "is no part of a cache"},
		"an empty mask":             {"rdt: {classes: {be: {l2: 0x0}}}", "is no mask of cache ways"},
		"a share in second place":   {"rdt: {classes: {be: {l3: '0-30%, 0x3'}}}", "after the first comes ID=SHARE"},
		"a cache twice":             {"rdt: {classes: {be: {l3: '0=0x3, 0=0x1'}}}", "cache 0 is there twice"},
		"one of several":            {"rdt: {classes: {be: {mb: '10%, 1=0%'}}}", `"10%, 1=0%": "1=0%": `},
		"no cache's number":         {"rdt: {classes: {be: {l3: 'L3=0x3'}}}", "must be the number of a cache"},
		"no bandwidth":              {"rdt: {classes: {be: {mb: 0%}}}", "is no memory bandwidth"},
		"no amount of bandwidth":    {"rdt: {classes: {be: {mb: 5GBps}}}", "is no memory bandwidth"},
		"code and both":             {"rdt: {classes: {be: {l3: 0-10%, l3code: 0x1, l3data: 0x2}}}", "rdt.classes.be.l3: is there beside l3code or l3data"},
		"code without data":         {"rdt: {classes: {be: {l2code: 0x1}}}", "l2code and l2data go together"},
		"a watermark":               {"memory:\n  globalWatermark: on", `line 2: memory.globalWatermark: "on": must be off or auto`},
		"no number of percent":      {"memory:\n  bePageCachePercent: 20%", `line 2: memory.bePageCachePercent: "20%": must be a whole number`},
		"too many percent":          {"memory:\n  bePageCachePercent: 101", "line 2: memory.bePageCachePercent: 101: must be 0 to 100"},
		"an alias to what holds it": {"rdt: {classes: &a {x: *a}}", "rdt.classes.x.x: is not a key"},
	} {
		got, err := Parse([]byte(c.text))
		var list Errors
		if got != nil || !errors.As(err, &list) {
			t.Errorf("%s: %+v, %v of type %T", name, got, err, err)
			continue
		}
		if len(list) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n%v, want\n%s", name, err, c.want)
		}
	}
}

// The parsed percentages are in the range of a share.
func FuzzShares(f *testing.F) {
	for _, text := range []string{"0-30%", "0x7f", "0-30%, 1=0x7f", "85%", "5000MBps", "85%,0=1%", "=", ",", "0x", "1=2=3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c Cache
		if c.UnmarshalText([]byte(text)) == nil {
			if !c.some() {
				t.Fatalf("%q is nothing", text)
			}
			for _, s := range append([]schemata.Range{c.All}, values(c.ByID)...) {
				if s.From < 0 || s.To > 100 || s.From > s.To || s.Mask != 0 && s.To != 0 {
					t.Fatalf("%q: %+v", text, s)
				}
			}
		}
		var b Bandwidth
		if b.UnmarshalText([]byte(text)) == nil {
			for _, s := range append([]schemata.Bandwidth{b.All}, values(b.ByID)...) {
				if s.Percent < 0 || s.Percent > 100 || s.MBps < 0 || s.Percent > 0 && s.MBps > 0 {
					t.Fatalf("%q: %+v", text, s)
				}
			}
		}
	})
}

func values[T any](m map[int]T) []T {
	var list []T
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
