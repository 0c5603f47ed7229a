package annotation

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestParseEgress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]workload.Egress{
		"64k": {Bits: 64_000}, "64000": {Bits: 64_000}, "1500k": {Bits: 1_500_000}, "200M": {Bits: 200_000_000}, "1G": {Bits: 1_000_000_000}, "10T": {Bits: 10_000_000_000_000},
		"1.5G": {Bits: 1_500_000_000}, "1e9": {Bits: 1_000_000_000}, "64Ki": {Bits: 65_536}, "1Gi": {Bits: 1 << 30}, "9Ti": {Bits: 9 << 40},
		"1%": {Percent: 1}, "20%": {Percent: 20}, "100%": {Percent: 100},
	} {
		if got, err := parseEgress(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "0", "1", "63k", "63999", "63999.9", "64000.5", "10.1T", "10Ti", "1P", "9Ei", "-200M", "+-1", "200Mb", "200Mbit", "200mbit", "200 M", "1K", "G", "much", "none", "off",
		"0%", "101%", "-1%", "+5%", "20.5%", "20 %", "%", "20%%", "%20", "4294967316%", "200m", "64000000m", "1e4444444444400", "1e4444444444400%", "0x10000", "1_000_000", "{}", "[1G]",
	} {
		got, err := parseEgress(text)
		if err == nil || got != (workload.Egress{}) || !strings.Contains(err.Error(), "64k to 10T") || !strings.Contains(err.Error(), "1% to 100%") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "M for millions") != strings.HasSuffix(text, "m") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Each case is a BE container, unless its class is LS. The want "refused" stands for an error; text
// contains parts of the error, or one part of each warning.
func TestEgress(t *testing.T) {
	t.Parallel()
	const (
		key     = "egress.sluice.dev"
		network = koordNetwork + "="
	)
	gives := func(pool, class Set) func(*Rules) {
		return func(r *Rules) { r.PoolSets, r.Classes.BE = map[string]Set{"batch": pool}, class }
	}
	classify := func(value string) func(*Rules) {
		return func(r *Rules) {
			gives(nil, given("egress", "100M"))(r)
			r.Classify = []Classification{{Set: given("egress", value)}}
		}
	}
	for name, c := range map[string]struct {
		says  []string
		rules func(*Rules)
		ls    bool
		want  string
		from  string // sources of the key, in order
		text  []string
	}{
		"nothing":          {},
		"bits":             {says: []string{key + "=200M"}, want: "egress=200000000", from: "annotation " + key},
		"percent":          {says: []string{key + "= 20% "}, want: "egress=20%", from: "annotation " + key},
		"of one container": {says: []string{key + "=200M", key + "/container.app=100M", key + "/container.other=64k"}, want: "egress=100000000", from: "annotation " + key + "/container.app"},
		"of LS":            {says: []string{key + "=200M"}, ls: true, text: []string{"annotation egress.sluice.dev has no effect on class LS"}},
		"a bad one of LS":  {says: []string{key + "=much"}, ls: true, text: []string{"has no effect on class LS"}},
		"no amount":        {says: []string{key + "=much"}, want: "refused", text: []string{"container team/web/app: annotation egress.sluice.dev = \"much\": must be bits per second", "1% to 100%"}},
		"m for M":          {says: []string{key + "=200m"}, want: "refused", text: []string{"M for millions"}},
		"ignored":          {says: []string{key + "=much"}, rules: func(r *Rules) { r.OnInvalid = Ignore }, text: []string{"(ignored)"}},
		"a typo":           {says: []string{"egres.sluice.dev=1G"}, want: "refused", text: []string{"did you mean egress?"}},

		// Of the configuration
		"the class's":              {rules: gives(nil, given("egress", "1G")), want: "egress=1000000000", from: "config classes.BE"},
		"the class's, of LS":       {rules: gives(nil, given("egress", "1G")), ls: true},
		"the pool's":               {rules: gives(given("egress", "20%"), given("egress", "64k")), want: "egress=20%", from: "config pool batch"},
		"a rule's":                 {rules: classify("300M"), want: "egress=300000000", from: "config classify rule 1"},
		"a rule's, of LS":          {rules: classify("300M"), ls: true},
		"below the class's":        {says: []string{key + "=100M"}, rules: gives(nil, given("egress", "1G")), want: "egress=100000000", from: "annotation " + key},
		"as the class's":           {says: []string{key + "=1000M"}, rules: gives(nil, given("egress", "1G")), want: "egress=1000000000", from: "annotation " + key},
		"above the class's":        {says: []string{key + "=10T"}, rules: gives(nil, given("egress", "1G")), want: "egress=1000000000", from: "annotation " + key + ", config classes.BE", text: []string{`asks for egress "10T", but config classes.BE allows 1G: the latter counts`}},
		"above the class's share":  {says: []string{key + "=90%"}, rules: gives(nil, given("egress", "20%")), want: "egress=20%", from: "annotation " + key + ", config classes.BE", text: []string{"allows 20%"}},
		"in the other form":        {says: []string{key + "=10T"}, rules: gives(nil, given("egress", "20%")), want: "egress=10000000000000+20%", from: "annotation " + key + ", config classes.BE"},
		"above the class's alone":  {says: []string{key + "=200M"}, rules: classify("300M"), want: "egress=200000000", from: "annotation " + key},
		"a bad one, the class's":   {says: []string{key + "=much"}, rules: func(r *Rules) { gives(nil, given("egress", "1G"))(r); r.OnInvalid = Ignore }, want: "egress=1000000000", from: "config classes.BE", text: []string{"(ignored)"}},
		"Koordinator's, above too": {says: []string{network + `{"EgressLimit": "2G"}`}, rules: gives(nil, given("egress", "1G")), want: "egress=1000000000", from: "annotation " + koordNetwork + ", config classes.BE", text: []string{"allows 1G"}},

		// Koordinator
		"its amount":              {says: []string{network + `{"EgressLimit": "50M"}`}, want: "egress=50000000", from: "annotation " + koordNetwork},
		"its percentage":          {says: []string{network + `{"EgressLimit": 20}`}, want: "egress=20%", from: "annotation " + koordNetwork},
		"its other spelling":      {says: []string{network + `{"egressLimit": "50M"}`}, want: "egress=50000000", from: "annotation " + koordNetwork},
		"its both":                {says: []string{network + `{"IngressLimit": 20, "EgressLimit": "50M"}`}, want: "egress=50000000", from: "annotation " + koordNetwork, text: []string{"has an IngressLimit"}},
		"its ingress":             {says: []string{network + `{"IngressLimit": "10M"}`}, text: []string{"annotation koordinator.sh/networkQOS has an IngressLimit, which Sluice does not apply"}},
		"its no ingress":          {says: []string{network + `{"IngressLimit": "0", "EgressLimit": "50M"}`}, want: "egress=50000000", from: "annotation " + koordNetwork},
		"its none":                {says: []string{network + `{"EgressLimit": "0"}`}, rules: gives(nil, given("egress", "1G")), want: "egress=1000000000", from: "config classes.BE"},
		"its zero":                {says: []string{network + `{"IngressLimit": 0, "EgressLimit": 0}`}},
		"its null":                {says: []string{network + `{"IngressLimit": null, "EgressLimit": null}`}},
		"its empty texts":         {says: []string{network + `{"IngressLimit": "", "EgressLimit": ""}`}},
		"its empty object":        {says: []string{network + `{}`}},
		"its empty text":          {says: []string{network}},
		"its other fields":        {says: []string{network + `{"QoSClass": "BE", "PortsNetworkQOS": [1]}`}},
		"its LS":                  {says: []string{network + `{"EgressLimit": "50M"}`}, ls: true, text: []string{"annotation koordinator.sh/networkQOS has no effect on class LS"}},
		"its bad value of LS":     {says: []string{network + `{"EgressLimit": "much"}`}, ls: true, text: []string{"has no effect on class LS"}},
		"its bad value":           {says: []string{network + `{"EgressLimit": "50Mb"}`}, text: []string{`annotation koordinator.sh/networkQOS = "EgressLimit: \"50Mb\"": must be bits per second`}},
		"its bad percentage":      {says: []string{network + `{"EgressLimit": 101}`}, text: []string{`"EgressLimit: 101": must be bits per second`}},
		"its part of a percent":   {says: []string{network + `{"EgressLimit": 0.5}`}, text: []string{"1% to 100%"}},
		"its negative":            {says: []string{network + `{"EgressLimit": -5}`}, text: []string{"(ignored)"}},
		"its list":                {says: []string{network + `{"EgressLimit": ["50M"]}`}, text: []string{"(ignored)"}},
		"its least":               {says: []string{network + `{"EgressLimit": "10k"}`}, text: []string{"64k to 10T"}},
		"its endless number":      {says: []string{network + `{"EgressLimit": "1e4444444444400"}`}, text: []string{"(ignored)"}},
		"its bad JSON":            {says: []string{network + `50M`}, want: "refused", text: []string{"must be a JSON object"}},
		"own before Koordinator":  {says: []string{key + "=200M", network + `{"EgressLimit": "50M"}`}, want: "egress=200000000", from: "annotation " + key, text: []string{"the latter counts"}},
		"Koordinator off":         {says: []string{network + `{"EgressLimit": "50M"}`}, rules: func(r *Rules) { r.Dialects.Koordinator = false }},
		"Koordinator before rule": {says: []string{network + `{"EgressLimit": "50M"}`}, rules: classify("300M"), want: "egress=50000000", from: "annotation " + koordNetwork},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := rules()
			rules.Classes.BE = nil
			if c.rules != nil {
				c.rules(&rules)
			}
			says := c.says
			if !c.ls {
				says = append(says, "class.sluice.dev=BE")
			}
			p, app := pod(workload.BestEffort, 0, says...)
			got, warnings, err := rules.Request(Facts{}, p, app)
			if c.want == "refused" {
				if _, ok := errors.AsType[*Invalid](err); !ok {
					t.Fatalf("%q, %v, want an error", spell(&got.Tuning), err)
				}
				contains(t, err.Error(), c.text)
				return
			}
			if err != nil || spell(&got.Tuning) != c.want {
				t.Errorf("got %q, %v, want %q", spell(&got.Tuning), err, c.want)
			}
			var from []string
			for _, k := range got.Keys {
				if k.Key == "egress" {
					from = append(from, k.Source)
				}
			}
			if strings.Join(from, ", ") != c.from {
				t.Errorf("from %q, want %q", from, c.from)
			}
			if len(warnings) != len(c.text) {
				t.Fatalf("warnings %q, want %q", warnings, c.text)
			}
			for i, w := range warnings {
				contains(t, w.Text, []string{c.text[i], "container team/web/app"})
			}
		})
	}
}

// The values that explain shows have, as annotations, the same effect.
func TestEgressKeysReadBack(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"egress.sluice.dev=1.5Gi", "egress.sluice.dev=100%", koordNetwork + `={"EgressLimit":"50M"}`, koordNetwork + `={"EgressLimit":20}`} {
		rules := rules()
		p, app := pod(workload.BestEffort, 0, "class.sluice.dev=BE", says)
		got, _, err := rules.Request(Facts{}, p, app)
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{"class.sluice.dev": "BE"}
		for _, k := range got.Keys {
			if k.Key == "egress" {
				p.Annotations["egress.sluice.dev"] = k.Value
			}
		}
		again, _, err := rules.Request(Facts{}, p, app)
		if err != nil || again.Egress == (workload.Egress{}) || !reflect.DeepEqual(again.Tuning, got.Tuning) {
			t.Errorf("%s is %q, again %q, %v", says, spell(&got.Tuning), spell(&again.Tuning), err)
		}
	}
}
