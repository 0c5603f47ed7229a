package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func source(name, text, order, percent, selector string) Source {
	return Source{name, map[string]string{textKey: text, orderKey: order, rolloutKey: percent, selectorKey: selector}}
}

func TestParts(t *testing.T) {
	t.Parallel()
	parts := Parts("n1", []Source{
		source("late", "a", "20", "", ""), source("b", "b", "10", "100", "pool=batch"), source("a", "a", "10", "", ""), source("first", "f", "", "", ""),
		source("none", "n", "", "0", ""), source("others", "o", "", "", "pool=web"),
	}, selects)
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
		if p.Problem != "" || p.Text == "" {
			t.Errorf("%+v", p)
		}
	}
	if got := strings.Join(names, " "); got != "first a b late" {
		t.Errorf("the parts are %s", got)
	}
	for want, s := range map[string]Source{
		"the key sluice.yaml is missing":             source("x", " ", "", "", ""),
		`the key order has "-1"`:                     source("x", "a", "-1", "", ""),
		`the key rolloutPercent has "10%": it must`:  source("x", "a", "", "10%", ""),
		`the key nodeSelector has "pool==": it must`: source("x", "a", "", "", "pool=="),
		"a part has at most 16384":                   source("x", strings.Repeat("a", MaxText+1), "", "", ""),
		`"rollout" is not a key of a part`:           {"x", map[string]string{textKey: "a", "rollout": "1"}},
	} {
		if got := Parts("n1", []Source{s}, selects); len(got) != 1 || got[0].Text != "" || !strings.Contains(got[0].Problem, want) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// Of too many parts the most important ones count.
func TestTooManyParts(t *testing.T) {
	t.Parallel()
	var sources []Source
	for i := range MaxParts + 3 {
		sources = append(sources, source(fmt.Sprintf("p%02d", i), "a", fmt.Sprint(i), "", ""))
	}
	parts := Parts("n1", sources, selects)
	if len(parts) != MaxParts+1 || parts[0].Name != "p02" || parts[0].Text != "" || !strings.Contains(parts[0].Problem, "at most 32 parts") {
		t.Fatalf("%d parts, first %+v", len(parts), parts[0])
	}
	for i, p := range parts[1:] {
		if p.Name != fmt.Sprintf("p%02d", i+3) || p.Text == "" || p.Problem != "" {
			t.Errorf("%+v", p)
		}
	}
}

// A rollout has about its share of 50 and of 1,000 nodes, and one with a larger percentage has all
// nodes of a smaller one.
func TestCanaryOnlyGrows(t *testing.T) {
	t.Parallel()
	has := func(node, text string, percent int) bool {
		return len(Parts(node, []Source{source("p", text, "", fmt.Sprint(percent), "")}, selects)) == 1
	}
	rapid.Check(t, func(t *rapid.T) {
		node, text := rapid.String().Draw(t, "node"), rapid.StringMatching(`[a-z]+`).Draw(t, "text")
		less, more := rapid.IntRange(0, 100).Draw(t, "less"), rapid.IntRange(0, 100).Draw(t, "more")
		if less <= more && has(node, text, less) && !has(node, text, more) {
			t.Fatalf("%q has %q at %d %% and not at %d %%", node, text, less, more)
		}
	})
	count := 0
	for i := range 1000 {
		if has(fmt.Sprint("node-", i), "control: {}", 10) {
			count++
		}
	}
	if count < 70 || count > 130 {
		t.Errorf("10 %% of 1,000 nodes are %d", count)
	}
}

func FuzzDecodeParts(f *testing.F) {
	f.Add([]byte(`[{"name":"a","text":"control: {}"},{"name":"b","problem":"x"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		parts, err := DecodeParts(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(parts)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeParts(again); len(again) <= MaxMessage && (err != nil || len(back) != len(parts)) {
			t.Errorf("%d parts become %d: %v", len(parts), len(back), err)
		}
	})
}
