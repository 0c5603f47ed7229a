package annotation

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// checkGrant fails the test if a request exceeds the container's grant, or can't be carried out.
func checkGrant(t interface{ Fatalf(string, ...any) }, rules *Rules, p *workload.Pod, c *workload.Container, threads int, granted workload.Granted) {
	got, warnings, err := rules.Request(Facts{ThreadsPerCore: threads, Memory: 64 * gib, Granted: granted}, p, c)
	for _, w := range warnings {
		if w.Text == "" || !utf8.ValidString(w.Text) {
			t.Fatalf("warning %q", w)
		}
	}
	if err != nil {
		if got.Class != workload.Unclassified || got.Keys != nil {
			t.Fatalf("error %v with a request %q", err, show(got))
		}
		return
	}
	if got.Class < workload.LSE || got.Class > workload.System {
		t.Fatalf("no class")
	}
	milli := workload.Requested(p, c, &granted, 64*gib).CPU
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
	case !got.Class.Pinned() && (got.NUMA == workload.NUMASpread || got.SMT != 0 || got.L3 != 0 || got.Near != workload.Near{} || got.Exclusive != 0):
		t.Fatalf("a shared class with a pin's keys: %q", show(got))
	case got.Tier.Value > workload.TierBatch && !granted.Mid && !rules.authorized(p, HighTier):
		t.Fatalf("tier mid without authorization: %q", show(got))
	case got.Pool != "" && rules.knowsPool(got.Pool) != nil:
		t.Fatalf("pool %q", got.Pool)
	}
	cpu, memory := got.Grant()
	switch b := &got.Batch; {
	case !granted.Pod:
	case granted.Container && p.QoS() == workload.BestEffort && (cpu > granted.CPU+granted.BatchCPU || memory > granted.Memory+granted.BatchMemory):
		t.Fatalf("%dm and %d bytes, and the record grants %+v", cpu, memory, granted)
	case b.CPURequest.Value > granted.MostBatchCPU || b.MemoryRequest.Value > granted.MostBatchMemory:
		t.Fatalf("%+v of batch resources, and the record grants the pod %+v", *b, granted)
	}
	checkKnobs(t, rules, p, c, &got)
}

// checkKnobs fails the test if a request's knobs exceed the grant or the kernel's ranges. The
// configured rules give no knobs above the default ones.
func checkKnobs(t interface{ Fatalf(string, ...any) }, rules *Rules, p *workload.Pod, c *workload.Container, got *workload.Request) {
	knobs := &got.Tuning
	can := func(f Feature) bool { return rules.authorized(p, f) }
	identity := 0
	switch {
	case got.Class.Pinned():
		identity = 2
	case got.Class == workload.BE:
		identity = -1
	}
	m := &knobs.Memory
	inRange := func(n workload.Optional[int], least, most int) bool {
		return !n.Set || n.Value >= least && n.Value <= most
	}
	heaviest := knobs.IO.Weight.Value
	for _, d := range knobs.IO.Devices {
		heaviest = max(heaviest, d.Weight.Value)
		if checkDevice(d.Device) != nil {
			t.Fatalf("device %q", d.Device)
		}
	}
	quota := workload.MilliCPU(1 << 60)
	if c.Resources.Quota > 0 && c.Resources.Period > 0 {
		quota = workload.MilliCPU(float64(c.Resources.Quota)*1000/float64(c.Resources.Period)) + 1
	}
	limit := c.Resources.MemoryLimit
	switch {
	case knobs.Identity.Value > identity && !can(HighIdentity):
		t.Fatalf("identity above the class's without authorization: %q", spell(knobs))
	case !inRange(knobs.Identity, -1, 2) || !inRange(m.MinPercent, 0, 100) || !inRange(m.LowPercent, 0, 100) || !inRange(m.HighPercent, 0, 100) ||
		!inRange(m.WmarkRatio, 0, 100) || !inRange(m.WmarkScale, 1, 1000) || !inRange(m.WmarkMinAdj, -25, 50) || !inRange(m.Priority, 0, 12):
		t.Fatalf("out of the kernel's ranges: %q", spell(knobs))
	case m.Priority.Value > 0 && !can(OOMScore):
		t.Fatalf("killed last without authorization: %q", spell(knobs))
	case m.WmarkMinAdj.Value < 0 && got.Class == workload.BE && !can(OOMScore):
		t.Fatalf("BE spared without authorization: %q", spell(knobs))
	case knobs.Tier.Value < workload.TierFree || knobs.Tier.Value > workload.TierMid, knobs.Tier.Set && got.Class != workload.BE:
		t.Fatalf("a tier of %s: %q", got.Class, spell(knobs))
	case knobs.Egress != workload.Egress{} && got.Class != workload.BE, knobs.Egress.Bits != 0 && (knobs.Egress.Bits < workload.LeastEgress || knobs.Egress.Bits > workload.MostEgress),
		knobs.Egress.Percent < 0 || knobs.Egress.Percent > 100:
		t.Fatalf("egress of %s: %q", got.Class, spell(knobs))
	case knobs.OOMScore.Set && knobs.OOMScore.Value < c.OOMScoreAdj && !can(OOMScore):
		t.Fatalf("an OOM score below the kubelet's without authorization: %q", spell(knobs))
	case heaviest > 100 && !can(IOWeight):
		t.Fatalf("an I/O weight above 100 without authorization: %q", spell(knobs))
	case knobs.RDT.Class != "" && rules.knowsRDT(knobs.RDT.Class) != nil, knobs.RDT.Own != workload.RDTShare{} && !rules.RDTPerPod, knobs.RDT.Class != "" && knobs.RDT.Own != workload.RDTShare{}:
		t.Fatalf("RDT that there is not: %q", spell(knobs))
	case got.Class == workload.BE && knobs.RDT.Class != "be" && rules.Classes.BE["rdt-class"].Text == "be" && !can(OtherRDT):
		t.Fatalf("RDT class %q in place of the class's: %q", knobs.RDT.Class, spell(knobs))
	case knobs.Batch.CPURequest.Set && p.QoS() != workload.BestEffort, knobs.Batch.CPULimit.Value > quota, limit > 0 && knobs.Batch.MemoryLimit.Value > limit:
		t.Fatalf("batch resources above the kubelet's grant: %q", spell(knobs))
	case knobs.Burst.Percent < 0 || knobs.Burst.Percent > maxBurst || got.Class != workload.LS && knobs.Burst != workload.Burst{}:
		t.Fatalf("a burst of %s: %q", got.Class, spell(knobs))
	case got.Class == workload.BE && (knobs.Evict.Never || knobs.Allow.Set && knobs.Allow.Value != everyAction):
		t.Fatalf("BE that can't be evicted: %q", spell(knobs))
	case knobs.CoreSched != "" && !strings.HasPrefix(knobs.CoreSched, p.Namespace+"/"):
		t.Fatalf("a group of another namespace: %q", spell(knobs))
	case knobs.Weight != 0 || knobs.NetClass.Set:
		t.Fatalf("knobs that no pod may say: %q", spell(knobs))
	}
}

// Values close to valid ones reach further than random ones.
var (
	someKeys   = append(keyNames[:], "clas", "", "x.y")
	someScopes = []string{"", "", "", "/pod", "/container.app", "/container.other", "/x"}
	someValues = []string{"LSE", "LSR", "LS", "BE", "SYSTEM", "critical", "batch", "1", "2", "3", "4", "8", "99999999999999999999", "0-1", "0-3", "0-8191", "0,2", "single", "prefer",
		"full-core", "one-per-core", "any", "pack", "spread", "device", "0000:3b:00.0", "local", "core", "node", "db", "", " ", "\xff\x00", "{}",
		"off", "auto", "100%", "-1", "memory-qos", "evict", "none", "never", "be", "mid", "free", "{minPercent: 100, priority: 12}", "{wmarkMinAdj: -25}", "{swap: never}", "{swap: unlimited}", "{runDelay: 5%, ioPressure: 0.5%}", "200M", "64k", "10T", "1.5Gi", "63999", "200m", "20%", "1e9", "1e4444444444400", `{app: {cpu: "64", memory: 1Ti}}`, "{weight: 200}", `{weight: 50, devices: {"8:0": {weight: 101, readBPS: 1Mi}}}`}
	someDialect = []string{
		koordSpec, `{"preferredCPUBindPolicy":"FullPCPUs"}`, koordSpec, `{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUExclusivePolicy":"NUMANodeLevel"}`,
		koordStatus, `{"cpuset":"0-3"}`, koordStatus, `{"cpuset":"0-999999999","numaNodeResources":[{"node":99999}]}`, koordStatus, `{"numaNodeResources":[{"node":1}]}`, koordStatus, `[`,
		katalystQoS, "dedicated_cores", katalystQoS, "system_cores", katalystQoS, "?", katalystCPU, `{"cpuset_pool":"batch"}`, katalystMemory, `{"numa_binding":"true","numa_exclusive":"true"}`, katalystMemory, `null`,
		koordBurst, `{"policy":"auto"}`, koordCPU, `{"groupIdentity":2}`, koordCPU, `{"groupIdentity":-1}`, koordMemory, `{"policy":"auto"}`, koordMemory, `{"priorityEnable":1,"priority":12,"wmarkMinAdj":-25}`,
		koordIO, `{"blocks":[{"name":"/dev/sda","ioCfg":{"ioWeightPercent":100,"readBPS":1}}]}`, koordResctrl, `{"llc":{"schemata":{"range":[0,100]}}}`,
		koordExtended, `{"containers":{"app":{"requests":{"kubernetes.io/batch-cpu":"64000"},"limits":{"kubernetes.io/batch-cpu":"64000","kubernetes.io/batch-memory":"1Ti"}}}}`,
		koordOOM, "-1000", koordOOM, "1000", koordEvictRank, "1", koordNetwork, `{"IngressLimit":20,"EgressLimit":"50M"}`, koordNetwork, `{"EgressLimit":20}`, koordNetwork, `{"egressLimit":"1e4444444444400"}`, katalystCPU, `{"cpu_burst_policy":"dynamic"}`, katalystMemory, `{"oom_priority":"300"}`,
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
			rules.Authorize = []Authorization{{Features: []Feature{SystemClass, RoundUpCPUs, ExclusiveNUMA, OtherPool, HighIdentity, OtherRDT, IOWeight, OOMScore}, Namespaces: []string{"*"}}}
		}
		rules.RDTPerPod = rapid.Bool().Draw(t, "perPod")
		if rapid.Bool().Draw(t, "rdt") {
			rules.RDTClasses = []string{"be", "ls"}
			rules.Classes.BE["rdt-class"] = given("rdt-class", "be")["rdt-class"]
		}
		rules.Defaults.Guaranteed = rapid.SampledFrom([]workload.Class{workload.LSE, workload.LSR, workload.LS}).Draw(t, "default")
		if rapid.Bool().Draw(t, "classified") {
			name := rapid.SampledFrom(keyNames[:placementKeys]).Draw(t, "set")
			g, err := Give(name, rapid.SampledFrom(someValues).Draw(t, "to"))
			if err == nil && g.Text != "SYSTEM" && g.Text != "node" { // the configuration's settings need no authorization
				rules.Classify = []Classification{{Set: given("smt", "full-core")}}
				rules.Classify[0].Set[name] = g
			}
		}
		if rules.Classify == nil { // a rule may give a pool
			rules.DefaultPool, rules.PoolSets = "online", map[string]Set{"critical": given("oom-score", "-1000", "cpu-identity", "2", "io", "{weight: 500}")}
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
		checkGrant(t, &rules, p, c, rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "threads"), someGranted(t))
	})
}

// someGranted draws an entry of the kubelet's record.
func someGranted(t *rapid.T) workload.Granted {
	g := workload.Granted{Pod: rapid.Bool().Draw(t, "recorded")}
	if !g.Pod {
		return g
	}
	g.MostBatchCPU, g.MostBatchMemory = workload.MilliCPU(rapid.Int64Range(0, 9).Draw(t, "batch CPU")*500), rapid.Int64Range(0, 4).Draw(t, "batch memory")*gib
	g.Mid = g.MostBatchCPU > 0 && rapid.Bool().Draw(t, "mid")
	if g.Container = rapid.Bool().Draw(t, "container recorded"); g.Container {
		g.CPU, g.Memory = workload.MilliCPU(rapid.Int64Range(0, 9).Draw(t, "recorded CPU")*500), rapid.Int64Range(0, 4).Draw(t, "recorded memory")*gib
		g.BatchCPU, g.BatchMemory = g.MostBatchCPU, g.MostBatchMemory
		g.PodLevel = rapid.Bool().Draw(t, "pod level")
	}
	return g
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
		checkGrant(t, &rules, p, c, 2, workload.Granted{})
	})
}

// No label or annotation of Koordinator or Katalyst requests more than the grant, whatever its
// text is.
func FuzzDialects(f *testing.F) {
	names := []string{koordBurst, koordCPU, koordMemory, koordIO, koordResctrl, koordExtended, koordOOM, koordOOMs, koordEvictRank, koordSpec, koordStatus, katalystCPU, katalystMemory, koordNetwork}
	for i := 0; i < len(someDialect); i += 2 {
		f.Add(uint8(slices.Index(names, someDialect[i])), someDialect[i+1], "BE", uint8(i))
	}
	f.Fuzz(func(t *testing.T, n uint8, text, class string, kind uint8) {
		rules := rules()
		rules.RDTPerPod = kind&1 == 1
		qos := []workload.QoS{workload.Guaranteed, workload.Burstable, workload.BestEffort}[kind%3]
		p, c := pod(qos, 2000)
		p.Annotations[names[int(n)%len(names)]] = text
		p.Labels[koordQoS], p.Labels[koordCores], p.Labels[koordPriority] = class, text, class
		checkGrant(t, &rules, p, c, 2, workload.Granted{})
	})
}

// An accepted value, written in the kernel's notation, is accepted again with the same effect.
func FuzzValue(f *testing.F) {
	for k := range givenKeys {
		for _, value := range someValues {
			f.Add(uint8(k), value)
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, value string) {
		k := key(n) % givenKeys
		if len(value) > maxLength { // such a value is not parsed
			return
		}
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
		case k == memoryQoSKey:
			spelled = spellMemory(&req.Tuning.Memory)
		case k == ioKey:
			spelled = spellIO(&req.IO)
		case k == egressKey:
			spelled = spellEgress(req.Egress)
		}
		if err := set(&again, k, spelled); err != nil || show(again) != show(req) || spell(&again.Tuning) != spell(&req.Tuning) {
			t.Fatalf("%s %q: %q %q, again %q %q, %v", k, value, show(req), spell(&req.Tuning), show(again), spell(&again.Tuning), err)
		}
		var filled workload.Request
		if k.fill(&filled, &req); show(filled) != show(req) || spell(&filled.Tuning) != spell(&req.Tuning) {
			t.Fatalf("%s %q: %q is filled in as %q", k, value, spell(&req.Tuning), spell(&filled.Tuning))
		}
		if req.CPUs > cpuset.Max || len(req.Pool) > 63 || len(req.ExclusiveGroup) > 63 {
			t.Fatalf("%s %q: %q is out of range", k, value, show(req))
		}
	})
}
