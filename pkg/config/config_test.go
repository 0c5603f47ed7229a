package config

import (
	"encoding"
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

const shipped = "../../configs/sluice.yaml"

// given returns the Set that a configuration makes of valid keys and values.
func given(keysAndValues ...string) annotation.Set {
	set := annotation.Set{}
	for i := 0; i < len(keysAndValues); i += 2 {
		g, err := annotation.Give(keysAndValues[i], keysAndValues[i+1])
		if err != nil {
			panic(err)
		}
		set[keysAndValues[i]] = g
	}
	return set
}

func TestShippedFileIsTheDefault(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Classify = []annotation.Classification{} // the file has an empty list
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the file says\n%+v, the default is\n%+v", got, want)
	}
}

// The shipped file has every key of Config at its own place, and every key of list entries in an
// example.
func TestShippedFileIsComplete(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	all := reflect.ValueOf(Default()).Elem()
	d := decoder{lines: map[string]int{}}
	d.value(document.Content[0], all, "")
	examples := regexp.MustCompile(`(?m)^ *#\w.*$`).FindAllString(string(data), -1)
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for key, field := range fields(v) {
			at := join(path, key)
			if d.lines[at] == 0 {
				t.Errorf("%s lacks %s", shipped, at)
			}
			_, isText := reflect.TypeAssert[encoding.TextUnmarshaler](field.Addr())
			switch {
			case field.Kind() == reflect.Struct && !isText:
				walk(field, at)
			case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
				for inner := range fields(reflect.New(field.Type().Elem()).Elem()) {
					if !slices.ContainsFunc(examples, func(line string) bool {
						return strings.HasPrefix(strings.TrimSpace(line), "#"+key+": ") && regexp.MustCompile(`[{ ]`+inner+`: `).MatchString(line)
					}) {
						t.Errorf("%s has no example of %s[].%s", shipped, at, inner)
					}
				}
			}
		}
	}
	walk(all, "")
}

// Each example in the shipped file is valid in place of the default above it, and differs from it.
func TestShippedExamples(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	examples := 0
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		if len(text) < 2 || text[0] != '#' || text[1] == ' ' {
			continue
		}
		examples++
		indent := line[:len(line)-len(text)]
		key, _, _ := strings.Cut(text[1:], ":")
		with := strings.Split(string(data), "\n")
		with[i] = indent + text[1:]
		before := i - 1
		for before >= 0 && !strings.HasPrefix(lines[before], indent+key+":") {
			before--
		}
		if before < 0 {
			t.Errorf("line %d: no default before example %s", i+1, text)
			continue
		}
		with[before] = ""
		got, err := Parse([]byte(strings.Join(with, "\n")))
		if err != nil {
			t.Errorf("line %d: %v", i+1, err)
			continue
		}
		got.Classify = append([]annotation.Classification(nil), got.Classify...)
		if reflect.DeepEqual(got, Default()) {
			t.Errorf("line %d: example %s changes nothing", i+1, text)
		}
	}
	if examples < 20 {
		t.Errorf("%d examples found", examples)
	}
}

func TestEmptyFilesAreTheDefault(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "\n", "# nothing", "---\n", "null", "reserved:\npools:\nlog:\n", "{}"} {
		got, err := Parse([]byte(text))
		if err != nil || !reflect.DeepEqual(got, Default()) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(`
mode: on # a boolean in YAML 1.1
reserved: 010
system: 0-1,4-7:1/2
pools:
  mode: exclusive
  list:
  - {name: gold, cpus: 50%}
  - {name: "1", cpus: 3}
  - name: iron
    cpus: 16-17
  - name: batch
defaults: {guaranteed: LSR}
classify:
- &spark
  namespaces: [spark]
  labels: {app: "*", yes: no}
  set: {class: BE, memory-nodes: 1, pool: gold}
- *spark
reserveTimeout: 1m30s
recordUpdates: {enabled: false}
log: {file: /x, level: warn}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Reserved = cpuset.Of(10)
	want.System = cpuset.Of(0, 1, 4, 6)
	want.Pools = Pools{Mode: Exclusive, List: []Pool{
		{Name: "gold", CPUs: PoolSize{Percent: 50}}, {Name: "1", CPUs: PoolSize{Count: 3}}, {Name: "iron", CPUs: PoolSize{Set: cpuset.Of(16, 17)}}, {Name: "batch"}}}
	want.Rules.Pools, want.DefaultPool = []string{"gold", "1", "iron", "batch"}, "iron"
	want.Defaults.Guaranteed = workload.LSR
	spark := annotation.Classification{
		Match: annotation.Match{Namespaces: []string{"spark"}, Labels: map[string]string{"app": "*", "yes": "no"}},
		Set:   given("class", "BE", "memory-nodes", "1", "pool", "gold"),
	}
	want.Classify = []annotation.Classification{spark, spark}
	want.ReserveTimeout = 90 * time.Second
	want.RecordUpdates.Enabled = false
	want.Log = Log{Level: "warn", Format: "text", File: "/x"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	wantPolicy := placement.Config{Reserved: cpuset.Of(10), System: cpuset.Of(0, 1, 4, 6), Mode: placement.Exclusive, Pools: []placement.Pool{
		{Name: "gold", Size: placement.Size{Percent: 50}}, {Name: "1", Size: placement.Size{Count: 3}}, {Name: "iron", Size: placement.Size{Set: cpuset.Of(16, 17)}}, {Name: "batch"}}}
	if p := got.Policy(); !reflect.DeepEqual(p, wantPolicy) {
		t.Errorf("policy %+v, want %+v", p, wantPolicy)
	}
}

func TestDefaultPolicyIsThePolicysDefault(t *testing.T) {
	t.Parallel()
	if got := Default().Policy(); !reflect.DeepEqual(got, placement.Default()) {
		t.Errorf("%+v, want %+v", got, placement.Default())
	}
}

// want is the whole error, with all mistakes in the order of their lines.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key":          {"mod: on", "line 1: mod: is not a key that Sluice knows; did you mean mode?"},
		"an unknown inner key":    {"log:\n  levle: info", "line 2: log.levle: is not a key that Sluice knows; did you mean level?"},
		"nothing like it":         {"log: {qqqqqqq: 1}", "line 1: log.qqqqqqq: is not a key that Sluice knows; there are file, format, level"},
		"not a key of the file":   {"Rules: {}", "Rules: is not a key"},
		"a key twice":             {"mode: on\nroundUp: true\nmode: preview", "line 3: mode: is there twice"},
		"a mode":                  {"mode: yes", `line 1: mode: "yes": must be on or preview`},
		"several":                 {"driftInterval: 1ms\nneighbours: 1\nfailurePolicy: [open]\nonInvalid: warn", "line 1: driftInterval: 1ms: must be 100ms to 1h0m0s\nline 2: neighbours: \"1\": must be preview or ignore\nline 3: failurePolicy: must be one value\nline 4: onInvalid: \"warn\": must be reject or ignore"},
		"a list of CPUs":          {"reserved: 0-x", `line 1: reserved: "0-x": CPU list "0-x": "x" is not a number`},
		"a YAML list of CPUs":     {"reserved: [0, 1]", "line 1: reserved: must be one value"},
		"reserved and system":     {"reserved: 0-3\nsystem: 3-4", "line 2: system: CPUs 3 are reserved too"},
		"a number of seconds":     {"reserveTimeout: 300", `line 1: reserveTimeout: "300": must be a duration like`},
		"too long a time":         {"recordUpdates:\n  delay: 11m", "line 2: recordUpdates.delay: 11m0s: must be 100ms to 10m0s"},
		"no boolean":              {"roundUp: on", `line 1: roundUp: "on": must be true or false`},
		"no mapping":              {"log: info", "line 1: log: must be keys with values"},
		"no list":                 {"vmRuntimes: kata", "line 1: vmRuntimes: must be a list"},
		"a list for a name":       {"pools:\n  list:\n  - name: [a]", "line 3: pools.list[0].name: must be a text\nline 3: pools.list[0].name: \"\": must be 1 to 63"},
		"a file as a list":        {"- mode: on", "line 1: must be keys with values"},
		"two files":               {"mode: on\n---\nmode: on", "is a second document"},
		"no YAML":                 {"mode: on\n  x: [", "line 2: not YAML: "},
		"a relative log file":     {"log: {file: sluice.log}", `line 1: log.file: "sluice.log": must be an absolute path`},
		"a relative state folder": {"stateDir: state", `line 1: stateDir: "state": must be an absolute path`},
		"no status socket":        {"statusSocket: ''", `line 1: statusSocket: "": must be an absolute path`},
		"a pattern":               {"vmRuntimes: [ok, '[kata']", `line 1: vmRuntimes[1]: "[kata": is not a pattern`},
		"no pools":                {"pools: {list: []}", "line 1: pools.list: there are 0 pools"},
		"a pool's name":           {"pools:\n  list: [{name: A b}]", `line 2: pools.list[0].name: "A b": must be`},
		"a pool twice":            {"pools:\n  list: [{name: a}, {name: a}]", "line 2: pools.list[1].name: a is there twice"},
		"a pool of no CPUs":       {"pools: {list: [{name: a, cpus: 0}, {name: b}]}", `pools.list[0].cpus: "0": a count of CPUs must be 1 or more`},
		"a pool of too much":      {"pools: {list: [{name: a, cpus: 101%}, {name: b}]}", "must be 1% to 100%"},
		"a pool of no share":      {"pools: {list: [{name: a, cpus: 0%}, {name: b}]}", "must be 1% to 100%"},
		"a pool of something":     {"pools: {list: [{name: a, cpus: some}, {name: b}]}", "must be a count of CPUs (4)"},
		"a pool of reserved":      {"reserved: 0-1\npools: {list: [{name: a, cpus: 1-2}, {name: b}]}", "line 2: pools.list[0].cpus: CPUs 1 are reserved"},
		"pools over pools":        {"pools: {list: [{name: a, cpus: 1-2}, {name: b, cpus: 2-3}, {name: c}]}", "pools.list[1].cpus: CPUs 2 are in a pool before"},
		"shares beyond all":       {"pools: {list: [{name: a, cpus: 60%}, {name: b, cpus: 50%}, {name: c}]}", "add up to 110%"},
		"shares of all":           {"pools: {list: [{name: a, cpus: 60%}, {name: b, cpus: 40%}, {name: c}, {name: d}]}", "leaves nothing for c"},
		"exclusive, two rests":    {"pools: {mode: exclusive}", "line 1: pools.list: critical and online and batch have no cpus"},
		"SYSTEM by default":       {"defaults:\n  burstable: SYSTEM", "line 2: defaults.burstable: must be LSE, LSR, LS or BE"},
		"no class":                {"defaults: {burstable: ls}", `"ls": `},
		"classify: typo":          {"classify:\n- namespaces: [a]\n  set:\n    claas: BE", `line 4: classify[0].set.claas: "BE": is not a key that Sluice knows; did you mean class?`},
		"classify: value":         {"classify: [{set: {smt: maybe}}]", "must be full-core, one-per-core or any"},
		"classify: pool":          {"pools: {list: [{name: a}]}\nclassify: [{set: {pool: b}}]", "line 2: classify[0].set.pool: \"b\": is no pool of this node, which has a"},
		"classify: nothing":       {"classify:\n- namespaces: [a]", "line 2: classify[0]: sets nothing"},
		"classify: a pattern":     {"classify: [{runtimeHandlers: ['['], set: {class: BE}}]", "classify[0].runtimeHandlers[0]: \"[\": is not a pattern"},
		"classify: key twice":     {"classify:\n- set: {class: BE,\n   class: LS}", "line 3: classify[0].set.class: is there twice"},
		"authorize: feature":      {"authorize: [{features: [root], namespaces: [a]}]", `"root": must be system, roundUp, exclusiveNode, pool, identity`},
		"authorize: nobody":       {"authorize:\n- features: [system]", "line 2: authorize[0]: is for no pod"},
		"authorize: nothing":      {"authorize: [{namespaces: [a]}]", "authorize[0]: allows nothing"},
		"authorize: label's glob": {"authorize: [{features: [system], labels: {a/b: '['}}]", "authorize[0].labels.a/b: \"[\": is not a pattern"},
	} {
		got, err := Parse([]byte(c.text))
		var list Errors
		if got != nil || !errors.As(err, &list) {
			t.Errorf("%s: %+v, %v of type %T", name, got, err, err)
			continue
		}
		wants := strings.Split(c.want, "\n")
		if len(list) != len(wants) {
			t.Errorf("%s: %d errors, want %d:\n%v", name, len(list), len(wants), err)
			continue
		}
		for i, want := range wants {
			if text := list[i].Error(); !strings.Contains(text, want) {
				t.Errorf("%s: %q, want %q", name, text, want)
			}
		}
	}
}

// In overlap mode the batch pool covers the other pools, whatever CPUs they have.
func TestBatchPoolOverlaps(t *testing.T) {
	t.Parallel()
	if _, err := Parse([]byte("pools: {list: [{name: a, cpus: 0-3}, {name: b, cpus: 50%}, {name: c, cpus: 0-7}]}")); err != nil {
		t.Error(err)
	}
}

func TestRunsInVM(t *testing.T) {
	t.Parallel()
	for handler, want := range map[string]bool{"kata": true, "kata-qemu": true, "runc": false, "": false, "notkata": false} {
		if got := Default().RunsInVM(&workload.Pod{RuntimeHandler: handler}); got != want {
			t.Errorf("%q: %v", handler, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(shipped)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("a: &a [*a]\nclassify: &b [{set: {class: *b}}]"))
	f.Add([]byte("<<: {mode: on}\n? [x]\n: y\npools: {list: [1, null, {name: !!binary aGk=}]}"))
	f.Add([]byte("classify: [{set: {memory-nodes: 0-4095}, labels: {a: '[a-]'}}]\ndefaults: {guaranteed: }"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if (c == nil) != (err != nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if err != nil {
			if list, ok := err.(Errors); !ok || len(list) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if len(c.Policy().Pools) == 0 || c.DriftInterval <= 0 || c.Reserved.Overlaps(c.System) {
			t.Fatalf("an invalid configuration is taken: %+v", c)
		}
	})
}
