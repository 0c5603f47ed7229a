package annotation

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// checkGrant fails where a request is more than the container was granted, or is
// not one that a policy can serve.
func checkGrant(t interface{ Fatalf(string, ...any) }, rules *Rules, p *workload.Pod, c *workload.Container, threads int) {
	got, warnings, err := rules.Request(Facts{ThreadsPerCore: threads, Memory: 64 * gib}, p, c)
	for _, w := range warnings {
		if w.Text == "" || !utf8.ValidString(w.Text) {
			t.Fatalf("warning %q", w)
		}
	}
	if err != nil {
		if got.Class != workload.Unclassified || got.Settings != nil {
			t.Fatalf("error %v with a request %q", err, show(got))
		}
		return
	}
	if got.Class < workload.LSE || got.Class > workload.System {
		t.Fatalf("no class")
	}
	milli, _ := workload.CPURequest(p, c.Resources)
	most := int(milli / 1000)
	if rules.RoundUp && rules.authorized(p, RoundUpCPUs) && milli > 0 {
		most = (most + threads) / threads * threads
	}
	set := got.CPUSet.Size()
	switch {
	case got.CPUs > most:
		t.Fatalf("%d CPUs pinned, %dm granted: %q", got.CPUs, milli, show(got))
	case got.Class.Pinned() != (got.CPUs > 0):
		t.Fatalf("%d CPUs pinned: %q", got.CPUs, show(got))
	case set != 0 && set != got.CPUs:
		t.Fatalf("%d CPUs chosen of %d: %q", set, got.CPUs, show(got))
	case got.Class == workload.LSE && got.SMT == workload.SMTDefault && got.CPUs%threads != 0:
		t.Fatalf("part of a core: %q", show(got))
	case got.Class == workload.System && !rules.authorized(p, SystemClass):
		t.Fatalf("SYSTEM without authorization: %q", show(got))
	case got.Exclusive == workload.ExclusiveNode && !rules.authorized(p, ExclusiveNUMA):
		t.Fatalf("a node to itself without authorization: %q", show(got))
	case !got.Class.Pinned() && (got.NUMA != 0 || got.SMT != 0 || got.L3 != 0 || got.Near != workload.Near{} || got.Exclusive != 0):
		t.Fatalf("a shared class with a pin's keys: %q", show(got))
	case got.Pool != "" && rules.knowsPool(got.Pool) != nil:
		t.Fatalf("pool %q", got.Pool)
	}
}

// Values that are near to something valid reach further than random ones.
var (
	someKeys   = append(keyNames[:], "clas", "", "x.y")
	someScopes = []string{"", "", "", "/pod", "/container.app", "/container.other", "/x"}
	someValues = []string{"LSE", "LSR", "LS", "BE", "SYSTEM", "critical", "batch", "1", "2", "3", "4", "8", "99999999999999999999", "0-1", "0-3", "0-8191", "0,2", "single", "prefer",
		"full-core", "one-per-core", "any", "pack", "spread", "device", "0000:3b:00.0", "local", "core", "node", "db", "", " ", "\xff\x00", "{}"}
	someDialect = []string{
		koordSpec, `{"preferredCPUBindPolicy":"FullPCPUs"}`, koordSpec, `{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"NUMANodeLevel"}`,
		koordStatus, `{"cpuset":"0-3"}`, koordStatus, `{"cpuset":"0-999999999","numaNodeResources":[{"node":99999}]}`, koordStatus, `{"numaNodeResources":[{"node":1}]}`, koordStatus, `[`,
		katalystQoS, "dedicated_cores", katalystQoS, "system_cores", katalystQoS, "?", katalystCPU, `{"cpuset_pool":"batch"}`, katalystMemory, `{"numa_binding":"true","numa_exclusive":"true"}`, katalystMemory, `null`,
	}
)

func TestTheGrantIsNeverExceeded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := rules()
		if rapid.Bool().Draw(t, "ignore") {
			rules.OnInvalid = Ignore
		}
		rules.RoundUp = rapid.Bool().Draw(t, "roundUp")
		if rapid.Bool().Draw(t, "authorized") {
			rules.Authorize = []Authorization{{Features: []Feature{SystemClass, RoundUpCPUs, ExclusiveNUMA}, Namespaces: []string{"*"}}}
		}
		rules.Defaults.Guaranteed = rapid.SampledFrom([]workload.Class{workload.LSE, workload.LSR, workload.LS}).Draw(t, "default")
		if rapid.Bool().Draw(t, "classified") {
			name := rapid.SampledFrom(keyNames[:placementKeys]).Draw(t, "set")
			g, err := Give(name, rapid.SampledFrom(someValues).Draw(t, "to"))
			if err == nil && g.Text != "SYSTEM" && g.Text != "node" { // what the config gives needs no authorization
				rules.Classify = []Classification{{Set: given("smt", "full-core")}}
				rules.Classify[0].Set[name] = g
			}
		}
		qos := rapid.SampledFrom([]workload.QoS{workload.Guaranteed, workload.Burstable, workload.BestEffort, workload.UnknownQoS}).Draw(t, "qos")
		p, c := pod(qos, rapid.Int64Range(0, 9).Draw(t, "half CPUs")*500)
		for range rapid.IntRange(0, 6).Draw(t, "own") {
			key := rapid.SampledFrom(someKeys).Draw(t, "key") + ".sluice.dev" + rapid.SampledFrom(someScopes).Draw(t, "scope")
			p.Annotations[key] = rapid.SampledFrom(someValues).Draw(t, "value")
		}
		for range rapid.IntRange(0, 3).Draw(t, "dialects") {
			i := rapid.IntRange(0, len(someDialect)/2-1).Draw(t, "dialect") * 2
			p.Annotations[someDialect[i]] = someDialect[i+1]
		}
		if rapid.Bool().Draw(t, "labelled") {
			p.Labels[koordQoS] = rapid.SampledFrom(someValues).Draw(t, "label")
		}
		checkGrant(t, &rules, p, c, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "threads"))
	})
}

func FuzzRequest(f *testing.F) {
	f.Add("class.sluice.dev", "LSR", "cpuset.sluice.dev/pod", "0-3", "LSE", uint64(4096), int64(400000), uint64(100000), true)
	f.Add("class.sluice.dev/container.app", "LSE", koordStatus, `{"cpuset":"0-3"}`, "", uint64(2048), int64(-1), uint64(0), false)
	f.Add(katalystQoS, "dedicated_cores", katalystMemory, `{"numa_binding":"true"}`, "BE", uint64(1<<63), int64(1<<62), uint64(1<<63), true)
	f.Add("sluice.dev/", "\x00", ".sluice.dev/container.", "\xff", "\xff", uint64(0), int64(0), uint64(0), false)
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, label string, shares uint64, quota int64, period uint64, ignore bool) {
		rules := rules()
		if ignore {
			rules.OnInvalid = Ignore
		}
		p, c := pod(workload.Guaranteed, 0)
		p.Annotations = map[string]string{key1: value1, key2: value2}
		p.Labels[koordQoS] = label
		c.Resources = workload.Resources{Shares: shares, Quota: quota, Period: period}
		checkGrant(t, &rules, p, c, 2)
	})
}

// A value that is taken can be taken again, and to the same effect in the
// kernel's spelling.
func FuzzValue(f *testing.F) {
	for k := range placementKeys {
		for _, value := range someValues {
			f.Add(uint8(k), value)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, value string) {
		k := key(n) % placementKeys
		var req workload.Request
		if err := set(&req, k, value); err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%s %q: an error without a reason", k, value)
			}
			return
		}
		var again workload.Request
		spelled := value
		switch {
		case k == cpusetKey:
			spelled = req.CPUSet.String()
		case k == nearKey && req.Near.PCI != "":
			spelled = req.Near.PCI
		case k == memoryNodesKey && req.MemoryNodes.Policy == workload.MemoryListed:
			spelled = req.MemoryNodes.Nodes.String()
		}
		if err := set(&again, k, spelled); err != nil || show(again) != show(req) {
			t.Fatalf("%s %q: %q, again %q, %v", k, value, show(req), show(again), err)
		}
		if req.CPUs > cpuset.Max || len(req.Pool) > 63 || len(req.ExclusiveGroup) > 63 {
			t.Fatalf("%s %q: %q is out of range", k, value, show(req))
		}
	})
}
