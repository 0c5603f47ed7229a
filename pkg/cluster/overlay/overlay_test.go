package overlay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
)

func accept(*config.Config) ([]string, error) { return nil, nil }

// lay lays parts over the text of a node's own configuration.
func lay(t *testing.T, own string, held, wanted []policy.Part, allowed string, accepts func(*config.Config) ([]string, error)) *Merged {
	t.Helper()
	document, err := config.Document([]byte(own))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := (&Node{Own: document, Allowed: strings.Split(allowed, " "), Accepts: accepts}).Merge(held, wanted)
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func TestMerge(t *testing.T) {
	t.Parallel()
	base := "mode: preview\ncontrol: {mode: preview, batch: {floorPercent: 3, growPercent: 7}, windows: [{from: '01:00', to: '02:00'}]}\n"
	for name, c := range map[string]struct {
		part    string
		problem string // part of it; "" for none
		keys    string
		floor   int
		windows int
	}{
		"a mapping is merged":    {"control: {batch: {floorPercent: 5}}", "", "control.batch.floorPercent", 5, 1},
		"a list is replaced":     {"control: {windows: []}", "", "control.windows", 3, 0},
		"the mode":               {"mode: on", "mode: a part may set control and pools alone", "", 3, 1},
		"a socket":               {"control: {eviction: {socket: /x}}", "only the node's own sluice.yaml sets control.eviction.socket", "", 3, 1},
		"host applications":      {"control: {hostApplications: [{name: x, cgroup: /system.slice/kubelet.service}]}", "only the node's own", "", 3, 1},
		"all of eviction":        {"control: {eviction: {}}", "only the node's own", "", 3, 1},
		"the whole loop":         {"control:", "only the node's own", "", 3, 1},
		"not allowed here":       {"pools: {mode: exclusive}", "pools.mode: this node does not allow parts to set it", "", 3, 1},
		"classes":                {"classes: {BE: {cpu-identity: -1}}", "a part may set control and pools alone", "", 3, 1},
		"an unknown key":         {"control: {batch: {floorPercnt: 5}}", "did you mean floorPercent", "", 3, 1},
		"a bad value":            {"control: {batch: {floorPercent: many}}", "must be a whole number", "", 3, 1},
		"good and bad":           {"control: {batch: {floorPercent: 5}, mode: maybe}", "control.mode", "", 3, 1},
		"twice":                  {"control: {batch: {floorPercent: 5, floorPercent: 6}}", "is there twice", "", 3, 1},
		"no YAML":                {"control: {", "not YAML", "", 3, 1},
		"two documents":          {"control: {mode: on}\n---\ncontrol: {mode: on}", "one YAML document", "", 3, 1},
		"a list":                 {"[a]", "one YAML document", "", 3, 1},
		"an alias":               {"control: {windows: &a [], rules: *a}", "no alias", "", 3, 1},
		"a merge key":            {"<<: {control: {mode: on}}", "a part may set", "", 3, 1},
		"a key with a dot in it": {"control: {batch.floorPercent: 5}", "is no key of sluice.yaml", "", 3, 1},
		"nothing":                {"{}", "one YAML document with keys", "", 3, 1},
	} {
		merged := lay(t, base, nil, []policy.Part{{Name: "p", Text: c.part}}, "control", accept)
		cfg, r := merged.Config, merged.Parts[0]
		if !strings.Contains(r.Problem, c.problem) || (r.Problem == "") != (c.problem == "") || strings.Join(r.Keys, " ") != c.keys {
			t.Errorf("%s: %+v", name, r)
		}
		if cfg.Control.Batch.FloorPercent != c.floor || len(cfg.Control.Windows) != c.windows || cfg.Control.Batch.GrowPercent != 7 || cfg.Mode != config.Preview {
			t.Errorf("%s: the floor is %d, there are %d windows", name, cfg.Control.Batch.FloorPercent, len(cfg.Control.Windows))
		}
	}
}

// The last part counts, each value has one source, and a part that the node refuses is as if it was
// not there.
func TestMergeInOrder(t *testing.T) {
	t.Parallel()
	parts := []policy.Part{
		{Name: "a", Text: "control: {batch: {floorPercent: 5, growPercent: 9}}"}, {Name: "bad", Text: "control: {batch: {growPercent: 6}}"},
		{Name: "away", Problem: "x"}, {Name: "b", Text: "control: {batch: {floorPercent: 7}}"},
	}
	refuse := func(c *config.Config) ([]string, error) {
		if c.Control.Batch.GrowPercent == 6 {
			return nil, errors.New("a pin would move")
		}
		return nil, nil
	}
	for _, held := range [][]policy.Part{nil, parts[:1], {parts[3], parts[0]}, {parts[0], {Name: "bad", Text: "control: {batch: {growPercent: 8}}"}}} {
		m := lay(t, "", held, parts, "control.batch", refuse)
		if m.Config.Control.Batch.FloorPercent != 7 || m.Config.Control.Batch.GrowPercent != 9 || !slices.Equal(m.Held, []policy.Part{parts[0], parts[3]}) {
			t.Errorf("%+v", m)
		}
		if got, want := fmt.Sprint(m.Parts), "[{a [control.batch.growPercent] } {bad [] a pin would move} {away [] x} {b [control.batch.floorPercent] }]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A part that running pins depend on stays in force until they have ended, whether it is removed,
// changed or broken; that holds up no other part.
func TestRemovalThatIsRefused(t *testing.T) {
	t.Parallel()
	a := policy.Part{Name: "a", Text: "control: {batch: {growPercent: 9}}"}
	was, is := policy.Part{Name: "b", Text: "control: {batch: {floorPercent: 5}}"}, policy.Part{Name: "b", Text: "control: {batch: {floorPercent: 7}}"}
	pinned := func(c *config.Config) ([]string, error) {
		if c.Control.Batch.GrowPercent != 9 {
			return nil, errors.New("a pin would move")
		}
		return nil, nil
	}
	for name, wanted := range map[string][]policy.Part{
		"removed": {is}, "changed": {{Name: "a", Text: "control: {batch: {growPercent: 8}}"}, is}, "broken": {{Name: "a", Problem: "x"}, is}, "not allowed": {{Name: "a", Text: "mode: on"}, is},
	} {
		m := lay(t, "", []policy.Part{a, was}, wanted, "control.batch", pinned)
		if m.Config.Control.Batch.FloorPercent != 7 || m.Config.Control.Batch.GrowPercent != 9 || !slices.Equal(m.Held, []policy.Part{a, is}) {
			t.Errorf("%s: %+v", name, m)
		}
		if len(m.Parts) != 2 || m.Parts[1].Problem != "" || !strings.Contains(m.Parts[0].Problem, "its earlier text stays in force, because without it: a pin would move") {
			t.Errorf("%s: %+v", name, m.Parts)
		}
		m = lay(t, "", m.Held, wanted, "control.batch", accept) // the pin has ended
		if m.Config.Control.Batch.GrowPercent == 9 || len(m.Held) > len(wanted) {
			t.Errorf("%s: without the pin: %+v", name, m)
		}
	}
	// What the node no longer allows does not stay.
	m := lay(t, "", []policy.Part{a, was}, []policy.Part{is}, "pools", pinned)
	if len(m.Held) > 0 || m.Config.Control.Batch.GrowPercent == 9 {
		t.Errorf("no longer allowed: %+v", m)
	}
}

// The settings of pools are privileges: a part changes none of them, and opens no pool that an
// authorization closes.
func TestPoolsKeepTheirSets(t *testing.T) {
	t.Parallel()
	base := "pools: {list: [{name: critical, set: {oom-score: -500}}, {name: online}, {name: batch}]}\n"
	for part, want := range map[string]string{
		"[{name: critical, set: {oom-score: -500}, cpus: 2}, {name: online, min: 2}, {name: batch}]":     "",
		"[{name: critical, set: {oom-score: -500}}, {name: web}, {name: batch}]":                         "",
		"[{name: critical}, {name: online}, {name: batch}]":                                              `"critical"`,
		"[{name: critical, set: {oom-score: -900}}, {name: online}, {name: batch}]":                      `"critical"`,
		"[{name: critical, set: {oom-score: -500, weight: 150%}}, {name: online}, {name: batch}]":        `"critical"`,
		"[{name: critical, set: {oom-score: -500}}, {name: online, set: {weight: 150%}}, {name: batch}]": `"online"`,
		"[{name: critical, set: {oom-score: -500}}, {name: mine, set: {oom-score: -9}}, {name: batch}]":  `"mine"`,
		"[{name: online}, {name: batch}]":                                                                `"critical"`,
	} {
		r := lay(t, base, nil, []policy.Part{{Name: "p", Text: "pools: {list: " + part + "}"}}, "pools", accept).Parts[0]
		if (r.Problem == "") != (want == "") || !strings.Contains(r.Problem, want) || want != "" && !strings.Contains(r.Problem, "the node's own sluice.yaml") {
			t.Errorf("%s: %+v", part, r)
		}
	}
}

// A part whose value takes a restart is not said to be in force.
func TestInertParts(t *testing.T) {
	t.Parallel()
	inert := func(*config.Config) ([]string, error) { return []string{"control"}, nil }
	parts := []policy.Part{{Name: "loop", Text: "control: {mode: on}"}, {Name: "pools", Text: "pools: {mode: overlap}"}}
	m := lay(t, "", nil, parts, "control pools", inert)
	if !slices.Equal(m.Held, parts[1:]) || !strings.Contains(m.Parts[0].Problem, "control.mode: this value takes a restart") || m.Parts[1].Problem != "" {
		t.Errorf("%+v", m)
	}
}

// Whatever parts have, keys that the node does not allow keep their values, and refused parts
// change nothing.
func FuzzMerge(f *testing.F) {
	f.Add("control: {batch: {floorPercent: 5}}", "pools: {mode: exclusive}")
	f.Add("control: {eviction: {by: cri}}", "control: {windows: [{from: '01:00', to: '02:00'}]}")
	f.Add("? [a]\n: b", "control: &x {mode: on}")
	f.Fuzz(func(t *testing.T, first, second string) {
		parts := []policy.Part{{Name: "a", Text: first}, {Name: "b", Text: second}}
		m := lay(t, "", nil, parts, "control.batch", accept)
		for _, c := range config.Compare(config.Values(config.Default()), config.Values(m.Config)) {
			if !below(c.Key, "control.batch") {
				t.Fatalf("%s has changed from %s to %s", c.Key, c.From, c.To)
			}
		}
		good := slices.DeleteFunc(slices.Clone(parts), func(p policy.Part) bool {
			return slices.ContainsFunc(m.Parts, func(r status.ConfigPart) bool { return r.Name == p.Name && r.Problem != "" })
		})
		again := lay(t, "", nil, good, "control.batch", accept)
		if len(config.Compare(config.Values(again.Config), config.Values(m.Config))) > 0 || !slices.Equal(m.Held, good) {
			t.Fatalf("without the refused parts it differs: %+v", m)
		}
	})
}
