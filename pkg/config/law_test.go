package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

func TestBand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Band{
		"30-50%": {30, 50}, "30-50": {30, 50}, "30%-50%": {30, 50}, " 0 - 100 %": {0, 100}, "7-7%": {7, 7},
	} {
		var got Band
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "30%", "50-30%", "-30-50%", "30-", "a-b", "30-50%%", "0-0%", "1.5-2%", "1-99999999%", "0x1-2"} {
		got := Band{1, 2}
		if err := got.UnmarshalText([]byte(text)); err == nil || got != (Band{1, 2}) || !strings.Contains(err.Error(), "30-50%") {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
}

func FuzzBand(f *testing.F) {
	for _, text := range []string{"30-50%", "30%-50%", "-", "0-0", " 1 - 2 %"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b Band
		if b.UnmarshalText([]byte(text)) == nil && (b.Low < 0 || b.High < max(b.Low, 1)) {
			t.Fatalf("%q: %v", text, b)
		}
	})
}

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s:\n%v", text, err)
	}
	return c
}

func TestPoolLaw(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]control.PoolConfig{
		"":                                  {{Name: "critical", Low: 30, High: 50}, {Name: "online", Low: 45, High: 60}, {Name: "batch", Low: 50, High: 80}},
		"pools: {list: [{name: critical}]}": {{Name: "critical", Low: 50, High: 80}},
		"pools: {list: [{name: a, band: 20-40%, rcf: 50-120%, min: 2}, {name: critical, memory: 2Gi}, {name: z, band: 1-99%}]}": {
			{Name: "a", Low: 20, High: 40, RCFMin: 50, RCFMax: 120, Min: 2}, {Name: "critical", Low: 30, High: 50, Memory: 2 << 30}, {Name: "z", Low: 1, High: 99},
		},
	} {
		if got := parsed(t, text).PoolLaw(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", text, got, want)
		}
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	got := parsed(t, `
control:
  mode: on
  fastInterval: 50ms
  pools: {mode: off}
  batch: {by: both, reserved: 1500m}
  memory: {reserve: 2Gi, mode: preview}
  rules:
  - {name: a, metric: pool.online.psi.cpu, watermark: 40, action: throttle, stepPercent: 10, mode: preview}
  windows:
  - {from: "22:00", to: "02:00", days: [mon, Sun], labels: {app: "x*"}, grace: 30m, evict: true}
`).Control
	want := control.DefaultConfig()
	want.Mode, want.FastInterval = control.On, 50*time.Millisecond
	want.Pools.Mode = control.Off
	want.Batch.By, want.Batch.Reserved = control.ByBoth, 1500
	want.Memory.Reserve, want.Memory.Mode = 2<<30, control.Preview
	want.Rules = []control.Rule{{Name: "a", Metric: "pool.online.psi.cpu", Watermark: 40, Action: control.RuleThrottle, StepPercent: 10, Mode: control.Preview}}
	want.Windows = []control.Window{{From: "22:00", To: "02:00", Days: []string{"mon", "Sun"}, Labels: map[string]string{"app": "x*"}, Grace: 30 * time.Minute, Evict: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// The default mode of a controller is that of the loop.
func TestDefaultMode(t *testing.T) {
	t.Parallel()
	if got, want := parsed(t, "control: {burst: {mode: on}}\n").Control.Burst.Mode, control.On; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := parsed(t, "control: {burst: {mode: default}, rules: [{name: a, metric: node.cpu, watermark: 1, action: refuse, mode: default}]}").Control; got.Burst.Mode != "" || got.Rules[0].Mode != "" {
		t.Errorf("%q and %q", got.Burst.Mode, got.Rules[0].Mode)
	}
}

// The loop can set the sizes of exclusive pools. If it is off or in preview, the configuration has
// to.
func TestPoolsWithoutSizes(t *testing.T) {
	t.Parallel()
	const exclusive = "pools: {mode: exclusive, list: [{name: a}, {name: b, cpus: 2}, {name: c}]}\n"
	for text, follows := range map[string]bool{
		"control: {mode: on}":                         true,
		"control: {pools: {mode: on}}":                true,
		"control: {mode: on, pools: {mode: default}}": true,
		"": false,
		"control: {mode: on, pools: {mode: preview}}":  false,
		"control: {mode: on, pools: {mode: off}}":      false,
		"mode: preview\ncontrol: {mode: on}":           false,
		"control: {batch: {mode: on}, mode: preview}":  false,
		"control: {mode: preview, pools: {mode: off}}": false,
	} {
		c, err := Parse([]byte(exclusive + text))
		switch {
		case follows && err != nil:
			t.Errorf("%s: %v", text, err)
		case follows && !c.Policy().Follow:
			t.Errorf("%s: the policy doesn't follow", text)
		case !follows && (err == nil || !strings.Contains(err.Error(), "line 1: pools.list: a and c have no cpus; in mode exclusive one pool may be the rest, the others need a size, unless the loop sets it (control.pools.mode: on)")):
			t.Errorf("%s: %v", text, err)
		}
	}
	if !parsed(t, "control: {mode: on}").Policy().Follow {
		t.Error("the batch pool that overlaps the others, whose size the budget may set, doesn't follow")
	}
}

// want is the whole error, or its beginning if want ends in "...".
func TestLawErrors(t *testing.T) {
	t.Parallel()
	const rule = "control:\n  rules:\n  - name: a\n    metric: node.cpu\n    watermark: 80\n    "
	const window = "control:\n  windows:\n  - from: \"09:30\"\n    to: \"11:30\"\n    "
	for name, c := range map[string]struct{ text, want string }{
		"no mode":               {"control:\n  mode: default", "line 2: control.mode: must be on, preview or off"},
		"a mode":                {"control:\n  mode: onn", `line 2: control.mode: "onn": must be on, preview or off`},
		"a controller's mode":   {"control:\n  burst:\n    mode: true", `line 3: control.burst.mode: "true": must be on, preview or off`},
		"a controller's typo":   {"control:\n  bursts: {}", "line 2: control.bursts: is not a key that Sluice knows; did you mean burst?"},
		"a key's typo":          {"control:\n  pools:\n    growCPU: 2", "line 3: control.pools.growCPU: is not a key that Sluice knows; did you mean growCPUs?"},
		"too fast":              {"control:\n  fastInterval: 1ms", "line 2: control.fastInterval: 1ms: must be 50ms to 1s"},
		"slower than all":       {"control: {fastInterval: 500ms, interval: 200ms}", "line 1: control.interval: 200ms: must be 500ms to 2s, ..."},
		"as slow as no loop":    {"control: {interval: 5s}", "line 1: control.interval: 5s: must be 100ms to 2s, because the failsafe acts after 5s without a measurement, and an idle node is measured once in each interval"},
		"a fraction":            {"control:\n  pools:\n    growPercent: 2.5", `line 3: control.pools.growPercent: "2.5": must be a whole number`},
		"a percent sign":        {"control:\n  pools:\n    growPercent: 25%", `line 3: control.pools.growPercent: "25%": must be a whole number`},
		"no band":               {"pools:\n  list:\n  - name: a\n    band: 60%", `line 4: pools.list[0].band: "60%": must be a range of percent like 30-50%`},
		"a band too narrow":     {"pools:\n  list:\n  - name: a\n    band: 50-50%", "line 4: pools.list[0].band: the upper end 50: must be 51 to 100 (percent)"},
		"a band too wide":       {"pools:\n  list:\n  - name: a\n    band: 50-150%", "line 4: pools.list[0].band: the upper end 150: must be 51 to 100 (percent)"},
		"a band from nothing":   {"pools:\n  list:\n  - name: a\n    band: 0-50%", "line 4: pools.list[0].band: the lower end 0: must be 1 to 99 (percent)"},
		"requests":              {"pools:\n  list:\n  - name: a\n    rcf: 50-2000%", "line 4: pools.list[0].rcf: the upper end 2000: must be 50 to 1000 (percent)"},
		"a minimum":             {"pools:\n  list:\n  - name: a\n    min: -1", "line 4: pools.list[0].min: -1: must be 0 to 8192"},
		"a pool's memory":       {"pools:\n  list:\n  - name: a\n    memory: lots", `line 4: pools.list[0].memory: "lots": must be a number with one of...`},
		"negative memory":       {"pools:\n  list:\n  - name: a\n    memory: -1Gi", `line 4: pools.list[0].memory: "-1Gi": must not be negative`},
		"a mechanism":           {"control:\n  batch:\n    by: quotas", `line 3: control.batch.by: "quotas": must be auto, quota, cpuset or both`},
		"a host's name":         {"control:\n  hostApplications:\n  - name: A\n    cgroup: /a", `line 3: control.hostApplications[0].name: "A": must be 1 to 63 small letters...`},
		"a host's CPUs apart":   {"pools: {mode: exclusive}\ncontrol:\n  mode: on\n  hostApplications: [{name: a, cgroup: /a}]", "line 4: control.hostApplications: need pools.mode overlap or auto: with exclusive, ..."},
		"a host's CPU set":      {"control:\n  batch: {by: cpuset}\n  hostApplications: [{name: a, cgroup: /a}]", "line 3: control.hostApplications: need control.batch.by auto, quota or both: with cpuset, ..."},
		"a threshold":           {"control:\n  batch:\n    thresholdPercent: 101", "line 3: control.batch.thresholdPercent: 101: must be 0 to 100 (percent)"},
		"too much reserved":     {"control:\n  batch:\n    reserved: 9k", `line 3: control.batch.reserved: "9k": must be 0 to 8192 CPUs`},
		"something reserved":    {"control:\n  batch:\n    reserved: some", `line 3: control.batch.reserved: "some": must be a number with...`},
		"burst below the limit": {"control:\n  burst:\n    maxPercent: 50", "line 3: control.burst.maxPercent: 50: must be 100 to 10000..."},
		"cooling over overload": {"control:\n  burst:\n    coolingPercent: 60", "line 3: control.burst.coolingPercent: 60: must be 1 to 50..."},
		"demotion":              {"control:\n  demotion:\n    stepPercent: 0", "line 3: control.demotion.stepPercent: 0: must be 1 to 90..."},
		"given, then evicted":   {"control:\n  memory:\n    safePercent: 68", "line 3: control.memory.safePercent: 68: must be below 68, which is evictPercent less evictMarginPercent: batch would be given memory that it is evicted for"},
		"an unknown class":      {"rdt: {classes: {jobs: {}}}\ncontrol:\n  cache:\n    class: job", `line 4: control.cache.class: "job": is not under rdt.classes; did you mean jobs?`},
		"a class without any":   {"control: {cache: {class: be}}", `line 1: control.cache.class: "be": is not under rdt.classes, which has none`},
		"an evictor":            {"control:\n  eviction:\n    by: api", `line 3: control.eviction.by: "api": must be report, cri or kubernetes`},
		"a relative socket":     {"control:\n  eviction:\n    socket: x.sock", `line 3: control.eviction.socket: "x.sock": must be an absolute path, or empty to look in the usual places`},
		"a pause":               {"control:\n  eviction:\n    cpuPause: 0s", "line 3: control.eviction.cpuPause: 0s: must be 1s to 1h0m0s"},
		"a margin":              {"control:\n  offer:\n    cpuMarginPercent: -1", "line 3: control.offer.cpuMarginPercent: -1: must be 0 to 100..."},
		"what counts":           {"control:\n  offer:\n    memoryBy: limit", `line 3: control.offer.memoryBy: "limit": must be usage or request`},
		"rules in no list":      {"control:\n  rules: {}", "line 2: control.rules: must be a list"},
		"a rule's action":       {rule + "action: stop", "line 6: control.rules[0].action: \"stop\": must be refuse, throttle, reclaim or evict\n..."},
		"a rule without action": {rule + "mode: on", "line 3: control.rules[0].action: is missing; it must be refuse, throttle, reclaim or evict"},
		"a rule's step":         {rule + "action: throttle", "line 3: control.rules[0].stepPercent: 0: must be 1 to 90, in percent"},
		"a step of nothing":     {rule + "action: evict\n    stepPercent: 5", "line 7: control.rules[0].stepPercent: is for throttle and reclaim; remove it, or choose throttle or reclaim"},
		"a rule's metric":       {"control:\n  rules:\n  - {name: a, watermark: 1, action: refuse,\n     metric: node.cpus}", `line 4: control.rules[0].metric: "node.cpus": is not a metric; did you mean node.cpu?`},
		"another node's pool":   {"control:\n  rules:\n  - {name: a, watermark: 1, action: refuse,\n     metric: pool.onlin.cpu}", `line 4: control.rules[0].metric: "pool.onlin.cpu": is not a metric; did you mean pool.online.cpu?`},
		"a rule twice":          {rule + "action: refuse\n  - {name: a, metric: node.cpu, watermark: 1, action: refuse}", `line 7: control.rules[1].name: "a" is there twice`},
		"a time":                {"control:\n  windows:\n  - {from: \"9.30\", to: \"11:30\"}", `line 3: control.windows[0].from: "9.30": must be a time of day like "09:30", "00:00" to "24:00"`},
		"no window":             {"control:\n  windows:\n  - {from: \"09:30\", to: \"09:30\"}", `line 3: control.windows[0].to: "09:30": is where the window begins; for a whole day write from 00:00 to 24:00`},
		"a day":                 {window + "days: [mon,\n      thue]", `line 6: control.windows[0].days[1]: day "thue": must be mon, tue, wed, thu, fri, sat or sun, did you mean tue?`},
		"a window's pattern":    {window + "labels: {app: '['}", `line 5: control.windows[0].labels.app: "[": is not a pattern; *, ? and [a-z] stand for letters, and \ takes away their meaning`},
		"a part that is gone":   {window + "percent: 30\n    evict: true", "line 6: control.windows[0].evict: goes with percent 0: a window that leaves batch a part of its CPUs evicts nobody"},
		"grace for nothing":     {window + "percent: 30\n    grace: 1m", "line 6: control.windows[0].grace: goes with percent 0: a window that leaves batch a part of its CPUs takes new BE too"},
	} {
		_, err := Parse([]byte(c.text))
		if _, is := errors.AsType[Errors](err); !is {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, open := strings.CutSuffix(c.want, "...")
		if got := err.Error(); got != want && (!open || !strings.HasPrefix(got, want)) {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}
