package fleet

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Each finding of each node is in one group, and the worst come first.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Findings
		for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
			node := Findings{Node: string(rune('a' + i))}
			for range rapid.IntRange(0, 5).Draw(t, "findings") {
				node.Findings = append(node.Findings, Finding{
					Area: "x", Name: rapid.SampledFrom([]string{"swap", "nri"}).Draw(t, "name"), Level: rapid.SampledFrom(Levels()).Draw(t, "level"), What: rapid.SampledFrom([]string{"1", "2"}).Draw(t, "what"),
				})
			}
			nodes = append(nodes, node)
		}
		least := rapid.SampledFrom(Levels()).Draw(t, "least")
		d := Diagnose(nodes, Asked{}, least)
		rank := func(level string) int { return slices.Index(Levels(), level) }
		for _, node := range nodes {
			for _, f := range node.Findings {
				n := 0
				for _, g := range d.Findings {
					if g.Name == f.Name && g.Level == f.Level && slices.Contains(g.Nodes, node.Node) {
						n++
					}
				}
				if want := rank(f.Level) <= rank(least); (n == 1) != want || n > 1 || d.Counts[f.Level] == 0 {
					t.Fatalf("%+v of node %s is in %d groups: %+v", f, node.Node, n, d)
				}
			}
		}
		for i, g := range d.Findings {
			if i > 0 && rank(g.Level) < rank(d.Findings[i-1].Level) || !slices.IsSorted(g.Nodes) || len(slices.Compact(slices.Clone(g.Nodes))) != len(g.Nodes) || g.Variants < 1 || g.Variants > 2 {
				t.Fatalf("%+v", d.Findings)
			}
		}
	})
}

func TestSwitched(t *testing.T) {
	t.Parallel()
	var silent BatchReport
	calm := silent.Outcome("a")
	preview := Outcome{Node: "b", Preview: "p"}
	partly := Outcome{Node: "c", Lacks: []string{"l"}}
	if s := NewSwitched("off", false, []Outcome{calm, preview, partly}, Asked{}); s.InForce != 1 || calm.Switch != "auto" || len(s.Nodes) != 3 {
		t.Errorf("%+v", s)
	}
}
