package annotation

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestClassifyMatches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match Match
		want  bool
	}{
		"everything":             {Match{}, true},
		"namespace":              {Match{Namespaces: []string{"other", "team"}}, true},
		"namespace by glob":      {Match{Namespaces: []string{"te*"}}, true},
		"another namespace":      {Match{Namespaces: []string{"tea"}}, false},
		"labels":                 {Match{Labels: map[string]string{"app": "w?b", "tier": "front"}}, true},
		"any value":              {Match{Labels: map[string]string{"tier": "*"}}, true},
		"one of the labels":      {Match{Labels: map[string]string{"app": "web", "zone": "*"}}, false},
		"another value":          {Match{Labels: map[string]string{"app": "db"}}, false},
		"runtime handler":        {Match{RuntimeHandlers: []string{"run*"}}, true},
		"another handler":        {Match{RuntimeHandlers: []string{"kata*"}}, false},
		"namespace, not handler": {Match{Namespaces: []string{"team"}, RuntimeHandlers: []string{"kata*"}}, false},
		"a malformed pattern":    {Match{Namespaces: []string{"[te"}}, false},
	} {
		p, _ := pod(workload.Burstable, 100, "label tier=front")
		if got := c.match.matches(p); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestFirstClassifyRuleWins(t *testing.T) {
	t.Parallel()
	rules := rules()
	rules.Classify = []Classification{
		{Match: Match{Namespaces: []string{"other"}}, Set: given("class", "LSE")},
		{Match: Match{Namespaces: []string{"team"}}, Set: given("class", "BE")},
		{Set: given("class", "LSR", "pool", "critical")},
	}
	p, c := pod(workload.Burstable, 2000)
	got, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c)
	if err != nil || show(got) != "BE" {
		t.Errorf("got %q, %v, want BE of the second rule alone", show(got), err)
	}
	if want := (workload.RequestKey{Key: "class", Value: "BE", Source: "config classify rule 2"}); got.Keys[0] != want {
		t.Errorf("settings %v, want %v", got.Keys, want)
	}
}

func TestDefaultsAndGuarantees(t *testing.T) {
	t.Parallel()
	rules := rules()
	rules.Defaults = Defaults{Guaranteed: workload.LSR, Burstable: workload.LS, BestEffort: workload.BE}
	for _, c := range []struct {
		qos    workload.QoS
		want   string
		memory int64
		source string
	}{
		{workload.Guaranteed, "LSR cpus=2", 2 * gib, "config defaults.guaranteed"},
		{workload.Burstable, "LS", 10 * gib, "config defaults.burstable"},
		{workload.BestEffort, "BE", 0, "config defaults.besteffort"},
		{workload.UnknownQoS, "LS", 0, "default"},
	} {
		p, app := pod(c.qos, 2000)
		got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2, Memory: 100 * gib}, p, app)
		if err != nil || len(warnings) > 0 || show(got) != c.want || got.Milli != 2000 || got.Memory != c.memory || got.Keys[0].Source != c.source {
			t.Errorf("%v: %q, %d m, %d bytes, %v, %v, %v", c.qos, show(got), got.Milli, got.Memory, got.Keys, warnings, err)
		}
	}
}

// The zero value of Rules is safe.
func TestZeroRules(t *testing.T) {
	t.Parallel()
	var rules Rules
	p, c := pod(workload.BestEffort, 0)
	if got, warnings, err := rules.Request(Facts{}, p, c); err != nil || len(warnings) > 0 || show(got) != "LS" {
		t.Errorf("got %q, %v, %v, want LS", show(got), warnings, err)
	}
	p.Annotations["class.sluice.dev"] = "LSR" // nothing in the pod requests a CPU
	if _, _, err := rules.Request(Facts{}, p, c); err == nil {
		t.Error("LSR without a request is not rejected")
	}
	p.Annotations["class.sluice.dev"] = "x"
	if _, _, err := rules.Request(Facts{}, p, c); err == nil {
		t.Error("an invalid class is not rejected")
	}
}

// TestDebugContainer checks that an ephemeral container starts in a pod with pins, whatever the
// annotations say: it requests nothing and can't have annotations.
func TestDebugContainer(t *testing.T) {
	t.Parallel()
	for _, says := range [][]string{
		{"class.sluice.dev=LSR"},
		{"class.sluice.dev/pod=LSE", "cpus.sluice.dev=2", "numa.sluice.dev=single"},
		{"label koordinator.sh/qosClass=LSR", `scheduling.koordinator.sh/resource-status={"cpuset":"4-5"}`},
	} {
		rules := rules()
		p, c := pod(workload.Guaranteed, 0, says...)
		c.Resources.Quota = 0
		got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c)
		if err != nil || show(got) != "LS" || len(warnings) == 0 || !strings.Contains(warnings[0].Text, "requests none (as those of kubectl debug do): it is LS") {
			t.Errorf("%q: got %q, %v, %v", says, show(got), warnings, err)
		}
	}
}

func TestCheckSetting(t *testing.T) {
	t.Parallel()
	rules := rules()
	for _, c := range []struct{ key, value, text string }{
		{"class", "BE", ""}, {"pool", "batch", ""}, {"smt", "any", ""}, {"memory-nodes", "0", ""},
		{"class", "be", "must be LSE"}, {"pool", "gold", "critical, online, batch"}, {"clas", "BE", "did you mean class?"},
		{"evict", "never", ""}, {"weight", "200%", ""}, {"weight", "2", "1% to 10000%"}, {"rdt-class", "be", "has none"}, {"batch-resources", "1", "not a key"},
	} {
		err := rules.CheckSetting(c.key, c.value)
		if (err == nil) != (c.text == "") || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %s: %v, want %q", c.key, c.value, err, c.text)
		}
	}
}
