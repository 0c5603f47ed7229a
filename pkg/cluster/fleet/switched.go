package fleet

import (
	"time"
)

// SwitchedSchema is the version of the shape of a Switched. It grows when a field changes its meaning
// or is removed.
const SwitchedSchema = 1

// Switched is what became of the batch switch on nodes.
type Switched struct {
	Schema  int       `json:"schema"`         // Version of the shape.
	Word    string    `json:"word,omitempty"` // What was asked for: off, on or auto; absent if the switch was only read.
	DryRun  bool      `json:"dryRun"`         // Whether nothing was switched, and the nodes are as they were found.
	Nodes   []Outcome `json:"nodes"`          // Nodes that answered, in alphabetical order.
	InForce int       `json:"inForce"`        // Number of nodes on which the switch is in force as a whole.
	Asked
}

// Outcome is the batch switch of one node.
type Outcome struct {
	Node    string    `json:"node"`              // Name of the node.
	Switch  string    `json:"switch"`            // State of the switch: off, on or auto.
	Evict   bool      `json:"evict"`             // Whether running batch pods are to be evicted.
	EndsAt  time.Time `json:"endsAt,omitzero"`   // Time at which the switch ends; absent if it does not end by itself.
	Batch   string    `json:"batch,omitempty"`   // What the node does with batch work; absent if no control loop says so.
	Preview string    `json:"preview,omitempty"` // Why the switch changes nothing on this node, and how to change that; absent if it does.
	Lacks   []string  `json:"lacks"`             // What is not in force.
}

// BatchReport is what 'sluice batch -o json' prints.
type BatchReport struct {
	Switch struct {
		State  string    `json:"state"`
		Evict  bool      `json:"evict"`
		EndsAt time.Time `json:"endsAt"`
	} `json:"switch"`
	Batch *struct {
		State string `json:"state"`
	} `json:"batch"`
	Preview string   `json:"preview"`
	Lacks   []string `json:"lacks"`
}

// Outcome is the report as that of a node.
func (r *BatchReport) Outcome(node string) Outcome {
	is := Outcome{Node: node, Switch: r.Switch.State, Evict: r.Switch.Evict, EndsAt: r.Switch.EndsAt, Preview: r.Preview, Lacks: append([]string{}, r.Lacks...)}
	if is.Switch == "" {
		is.Switch = "auto"
	}
	if r.Batch != nil {
		is.Batch = r.Batch.State
	}
	return is
}

// InForce reports whether the switch is in force as a whole.
func (o *Outcome) InForce() bool { return len(o.Lacks) == 0 && o.Preview == "" }

// NewSwitched puts the outcomes together.
func NewSwitched(word string, dryRun bool, outcomes []Outcome, asked Asked) *Switched {
	s := &Switched{Schema: SwitchedSchema, Word: word, DryRun: dryRun, Nodes: append([]Outcome{}, outcomes...), Asked: asked}
	for i := range s.Nodes {
		if s.Nodes[i].InForce() {
			s.InForce++
		}
	}
	return s
}
