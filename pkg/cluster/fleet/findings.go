package fleet

import (
	"cmp"
	"fmt"
	"slices"
)

// DiagnosisSchema is the version of the shape of a Diagnosis. It grows when a field changes its
// meaning or is removed.
const DiagnosisSchema = 1

// Levels are the levels of findings, the worst first.
func Levels() []string { return []string{"fail", "warn", "note", "ok"} }

// Findings are those of one node, as 'sluice doctor -o json' prints them.
type Findings struct {
	Node     string    `json:"-"`
	Findings []Finding `json:"findings"`
}

// Finding is the result of one check of a node.
type Finding struct {
	Area  string `json:"area"`         // What the check is about, for example "kernel".
	Name  string `json:"name"`         // Name of the check.
	Level string `json:"level"`        // Level: fail, warn, note or ok.
	What  string `json:"what"`         // What was found.
	Do    string `json:"do,omitempty"` // What to do about it.
}

// Check returns an error for a level that no doctor gives.
func (f *Findings) Check() error {
	for i := range f.Findings {
		if is := &f.Findings[i]; !slices.Contains(Levels(), is.Level) {
			return fmt.Errorf("the finding %.60q has level %.20q, and the levels are fail, warn, note and ok: use the kubectl-sluice of the node's version", is.Name, is.Level)
		}
	}
	return nil
}

// Diagnosis is what the doctor found on all nodes.
type Diagnosis struct {
	Schema   int            `json:"schema"`   // Version of the shape.
	Answered int            `json:"answered"` // Number of nodes that answered.
	Counts   map[string]int `json:"counts"`   // Number of findings by level, each once for all its nodes.
	Findings []Grouped      `json:"findings"` // Findings of the levels that were asked for, the worst first.
	Asked
}

// Grouped is a finding on some nodes.
type Grouped struct {
	Finding           // As on the first of the nodes.
	Nodes    []string `json:"nodes"`    // Nodes that have it, in alphabetical order.
	Variants int      `json:"variants"` // Number of different texts under "what", as of nodes with other amounts.
}

// Diagnose groups the nodes' findings by area, name, level and fix. It lists those of a level and of
// worse ones.
func Diagnose(nodes []Findings, asked Asked, level string) *Diagnosis {
	d := &Diagnosis{Schema: DiagnosisSchema, Answered: len(nodes), Counts: map[string]int{}, Findings: []Grouped{}, Asked: asked}
	for _, level := range Levels() {
		d.Counts[level] = 0
	}
	groups := map[Finding]*Grouped{}
	texts := map[Finding]map[string]bool{}
	for _, node := range slices.SortedFunc(slices.Values(nodes), func(a, b Findings) int { return cmp.Compare(a.Node, b.Node) }) {
		for _, f := range node.Findings {
			key := f
			key.What = ""
			if groups[key] == nil {
				groups[key], texts[key] = &Grouped{Finding: f}, map[string]bool{}
				d.Counts[f.Level]++
			}
			g := groups[key]
			if n := len(g.Nodes); n == 0 || g.Nodes[n-1] != node.Node {
				g.Nodes = append(g.Nodes, node.Node)
			}
			texts[key][f.What] = true
		}
	}
	least := slices.Index(Levels(), level)
	for key, g := range groups {
		g.Variants = len(texts[key])
		if slices.Index(Levels(), g.Level) <= least {
			d.Findings = append(d.Findings, *g)
		}
	}
	slices.SortFunc(d.Findings, func(a, b Grouped) int {
		return cmp.Or(
			cmp.Compare(slices.Index(Levels(), a.Level), slices.Index(Levels(), b.Level)), cmp.Compare(len(b.Nodes), len(a.Nodes)),
			cmp.Compare(a.Area, b.Area), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Do, b.Do),
		)
	})
	return d
}
