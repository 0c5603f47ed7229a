package annotation

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// setting is a value that a pod may request, and the authorization for it.
type setting struct {
	value  string
	with   string           // a further required annotation, "KEY=VALUE"
	needs  Feature          // required feature; "" for none
	only   []workload.Class // classes in which it needs the feature; all if empty
	never  []workload.Class // classes to which it is refused, whatever is authorized
	beyond bool             // refused to all, because it exceeds the grant or the node lacks it
}

// settings returns rows for each key and for each kind of value that needs more authorization. A
// key without a row fails the matrix.
func settings() map[key][]setting {
	be := []workload.Class{workload.BE}
	return map[key][]setting{
		classKey: {{value: "LSE"}, {value: "LSR"}, {value: "LS"}, {value: "BE"}, {value: "SYSTEM", needs: SystemClass}, {value: "ROOT", beyond: true}},
		poolKey:  {{value: "online"}, {value: "critical", needs: OtherPool}, {value: "unheard-of", beyond: true}},
		cpusKey:  {{value: "2"}, {value: "6", beyond: true}},
		cpusetKey: {
			{value: "0-1"}, {value: "0-5", beyond: true}},
		numaKey:           {{value: "single"}, {value: "prefer"}},
		smtKey:            {{value: "full-core"}, {value: "any"}},
		l3Key:             {{value: "spread"}},
		nearKey:           {{value: "device"}, {value: "0000:3b:00.0"}},
		memoryNodesKey:    {{value: "local"}, {value: "0"}},
		exclusiveKey:      {{value: "core"}, {value: "node", needs: ExclusiveNUMA}},
		exclusiveGroupKey: {{value: "db", with: "exclusive.sluice.dev=core"}},
		cpuBurstKey:       {{value: "100%"}, {value: "auto"}},
		cpuIdentityKey: {
			{value: "-1"},
			{value: "0", needs: HighIdentity, only: be},
			{value: "2", needs: HighIdentity, only: []workload.Class{workload.LS, workload.BE, workload.System}}},
		coreSchedKey: {{value: "db"}},
		memoryQoSKey: {
			{value: "{minPercent: 50}"},
			{value: "{priority: 1}", needs: OOMScore},
			{value: "{wmarkMinAdj: -1}", needs: OOMScore, only: be},
			{value: "{swap: allowed}"},
			{value: "{offload: true}"},
			{value: "{swap: never}", needs: OOMScore, only: be},
			{value: "{swap: unlimited}", needs: OOMScore}},
		rdtClassKey: {
			{value: "be"}, {value: "ls", needs: OtherRDT, only: be}, {value: "unheard-of", beyond: true}},
		ioKey: {
			{value: "{weight: 100}"},
			{value: "{weight: 101}", needs: IOWeight},
			{value: "{priority: idle}"},
			{value: `{devices: {"8:0": {weight: 101}}}`, needs: IOWeight}},
		requiredKey: {{value: "cpu-burst,memory-qos"}},
		allowKey:    {{value: "throttle,demote,reclaim,evict"}, {value: "none", never: be}},
		noticeKey:   {{value: "file"}, {value: "none"}},
		tierKey:     {{value: "free"}, {value: "batch"}, {value: "mid", needs: HighTier}},
		sloKey: {
			{value: "{runDelay: 5%}"},
			{value: "{runDelay: 4.9%}", needs: TightSLO},
			{value: "{runDelay: 50%, cpuPressure: 1%}", needs: TightSLO},
			{value: "{memoryPressure: 0.5%, ioPressure: 1%}"},
			{value: "{runDelay: 50%, latency: {metric: seconds, bound: 20ms, port: 80}}", needs: TightSLO}},
		evictKey:  {{value: "-5"}, {value: "never", never: be}},
		egressKey: {{value: "200M"}, {value: "20%"}, {value: "11T", beyond: true}},
	}
}

// nodeRules returns rules with a namespace per feature, of the feature's name, in which only that
// feature is authorized. In the namespace "all" two rules authorize all features.
func nodeRules() Rules {
	r := rules()
	r.DefaultPool, r.LeastSLOPercent = "online", 5
	r.PoolSets = map[string]Set{"critical": given("weight", "200%")}
	r.RDTClasses = []string{"be", "ls"}
	r.Classes.BE["rdt-class"] = given("rdt-class", "be")["rdt-class"]
	r.Authorize = []Authorization{{Features: []Feature{SystemClass}, Labels: map[string]string{"may-be-system": "true"}}}
	var all []Feature
	for _, name := range Features() {
		all = append(all, Feature(name))
		r.Authorize = append(r.Authorize, Authorization{Features: []Feature{Feature(name)}, Namespaces: []string{name}})
	}
	half := len(all) / 2
	r.Authorize = append(r.Authorize,
		Authorization{Features: all[:half], Namespaces: []string{"all"}},
		Authorization{Features: all[half:], Namespaces: []string{"all"}},
		Authorization{Features: all}, // without namespaces and labels it authorizes nothing
		Authorization{Features: all, Namespaces: []string{"all"}, Labels: map[string]string{"no": "pod has it"}})
	return r
}

// namespaces returns those of nodeRules, and some with similar names.
func namespaces() []string {
	return append(Features(), "all", "none", "", "ALL", "all\n", "all/all", "*")
}

var classes = []workload.Class{workload.LSE, workload.LSR, workload.LS, workload.BE, workload.System}

// In every class and namespace, a pod gets the settings that its namespace may have. The refusal
// of another names the feature and the namespace.
func TestAuthorizationMatrix(t *testing.T) {
	t.Parallel()
	rules, matrix := nodeRules(), settings()
	asked := map[Feature]bool{RoundUpCPUs: true} // see TestRoundUpIsAuthorized
	for k := range ownKeys {
		if k == grantKey { // counts in BestEffort pods only: see TestGrant
			continue
		}
		if len(matrix[k]) == 0 {
			t.Errorf("no row tells who may use %s: add its values to settings", k)
		}
		for _, row := range matrix[k] {
			asked[row.needs] = true
			for _, class := range classes {
				for _, namespace := range namespaces() {
					checkRow(t, &rules, k, row, class, namespace)
				}
			}
		}
	}
	for _, f := range Features() {
		if !asked[Feature(f)] {
			t.Errorf("no row needs the feature %s", f)
		}
	}
}

func checkRow(t *testing.T, rules *Rules, k key, row setting, class workload.Class, namespace string) {
	t.Helper()
	says := []string{"namespace=" + namespace, k.String() + ".sluice.dev=" + row.value}
	if k != classKey {
		says = append(says, "class.sluice.dev="+class.String(), "label may-be-system=true")
	}
	if row.with != "" {
		says = append(says, row.with)
	}
	p, c := pod(workload.Guaranteed, 4000, says...)
	got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2, Memory: 64 * gib}, p, c)

	at := strings.Join([]string{class.String(), strconv.Quote(namespace), k.String(), row.value}, " ")
	took := slices.ContainsFunc(got.Keys, func(s workload.RequestKey) bool { return s.Key == k.String() && s.Value == row.value })
	needs := row.needs != "" && (len(row.only) == 0 || slices.Contains(row.only, class))
	allowed := namespace == "all" || namespace == string(row.needs)
	switch {
	case k != classKey && !k.appliesTo(class):
		if err != nil || took || len(warnings) == 0 {
			t.Errorf("%s: means nothing to the class, and is answered with %v, %q", at, err, warnings)
		}
	case row.beyond || slices.Contains(row.never, class):
		if err == nil {
			t.Errorf("%s: taken", at)
		}
	case needs && !allowed:
		if err == nil {
			t.Errorf("%s: taken without authorization", at)
		} else if text := err.Error(); !strings.Contains(text, strconv.Quote(string(row.needs))) || !strings.Contains(text, "namespace "+clip(namespace)+";") {
			t.Errorf("%s: the refusal doesn't help: %s", at, text)
		}
	case err != nil || !took:
		t.Errorf("%s: not taken: %v", at, err)
	}
}

// Settings that only the configuration may give are refused to pods of every class and namespace.
func TestGivenKeysAreNotForPods(t *testing.T) {
	t.Parallel()
	rules := nodeRules()
	values := map[string]string{"weight": "100%", "oom-score": "0", "net-class": "10:1"}
	for _, name := range GivenKeys() {
		if values[name] == "" {
			t.Errorf("no value for %s", name)
		}
		for _, class := range classes {
			for _, scope := range []string{"", "/pod", "/container.app"} {
				p, c := pod(workload.Guaranteed, 4000, "namespace=all", "class.sluice.dev="+class.String(), name+".sluice.dev"+scope+"="+values[name])
				if _, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c); err == nil || !strings.Contains(err.Error(), "is not a key that a pod may say") {
					t.Errorf("%s of %s: %v", name+scope, class, err)
				}
			}
		}
	}
}

// The labels and annotations of dialects need the same authorization. A pod that starts without a
// setting gets a warning.
func TestDialectsAreAuthorized(t *testing.T) {
	t.Parallel()
	rules := nodeRules()
	const be, lse = "class.sluice.dev=BE", "class.sluice.dev=LSE"
	for _, row := range []struct {
		says  []string
		needs Feature
		key   key
		fails bool // the pod doesn't start without the setting
	}{
		{[]string{qosClass + "SYSTEM"}, SystemClass, classKey, true},
		{[]string{level + "system_cores"}, SystemClass, classKey, true},
		{[]string{lse, spec + `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`}, ExclusiveNUMA, exclusiveKey, false},
		{[]string{level + "dedicated_cores", memoryEnh + `{"numa_binding":"true","numa_exclusive":"true"}`}, ExclusiveNUMA, exclusiveKey, true},
		{[]string{cpuEnh + `{"cpuset_pool":"critical"}`}, OtherPool, poolKey, false},
		{[]string{koordCPU + `={"groupIdentity":2}`}, HighIdentity, cpuIdentityKey, false},
		{[]string{be, koordCPU + `={"groupIdentity":0}`}, HighIdentity, cpuIdentityKey, false},
		{[]string{koordMemory + `={"priorityEnable":1,"priority":12}`}, OOMScore, memoryQoSKey, false},
		{[]string{memoryEnh + `{"oom_priority":"300"}`}, OOMScore, memoryQoSKey, false},
		{[]string{be, "label " + koordPriority + "=koord-mid"}, HighTier, tierKey, false},
		{[]string{koordOOM + "=-998"}, OOMScore, oomScoreKey, false},
		{[]string{koordOOMs + `={"app":-998}`}, OOMScore, oomScoreKey, false},
	} {
		for _, namespace := range namespaces() {
			p, c := pod(workload.Guaranteed, 4000, append(row.says, "namespace="+namespace)...)
			got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2, Memory: 64 * gib}, p, c)
			took := slices.ContainsFunc(got.Keys, func(s workload.RequestKey) bool {
				return s.Key == row.key.String() && !strings.HasPrefix(s.Source, "config") && s.Source != "default"
			})
			allowed := namespace == "all" || namespace == string(row.needs)
			switch {
			case allowed != took:
				t.Errorf("%q in namespace %q: taken %v, %v %q", row.says, namespace, took, err, warnings)
			case !allowed && row.fails != (err != nil), !allowed && !row.fails && len(warnings) == 0:
				t.Errorf("%q in namespace %q: %v, warnings %q", row.says, namespace, err, warnings)
			}
		}
	}
}

func TestRoundUpIsAuthorized(t *testing.T) {
	t.Parallel()
	rules := nodeRules()
	rules.RoundUp = true
	for _, namespace := range namespaces() {
		p, c := pod(workload.Guaranteed, 3500, "class.sluice.dev=LSR", "namespace="+namespace)
		got, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c)
		if allowed := namespace == "all" || namespace == string(RoundUpCPUs); allowed != (err == nil && got.CPUs == 4) {
			t.Errorf("namespace %q: %d CPUs, %v", namespace, got.CPUs, err)
		}
	}
}
