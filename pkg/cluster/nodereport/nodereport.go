// Package nodereport is what a node says of itself in an annotation of its Node object: what its
// pods request and use, and what could be sold to batch work, also while nothing is sold. It is
// pure.
package nodereport

import (
	"encoding/json"
	"fmt"
	"time"
)

// Annotation is the key of the annotation, whose value is a Report in JSON.
const Annotation = "sluice.dev/node-report"

// Schema is the version of the report's shape. It grows when a field changes its meaning or is
// removed.
const Schema = 1

// These bound what is believed.
const (
	// MaxBytes is the length of the longest annotation that is read. A report takes less than a
	// third of it. The policy of configs/kubernetes/policies/own-node.yaml refuses more characters than
	// that; a report has one byte for each.
	MaxBytes = 2048
	// MaxAmount is the largest amount: 4.5 trillion CPUs, or 4 PiB.
	MaxAmount int64 = 1 << 52
)

// Report is what a node says of itself.
type Report struct {
	Schema     int       `json:"schema"`              // Version of the shape.
	MeasuredAt time.Time `json:"measuredAt,omitzero"` // Time of the measurement, by the node's clock; absent if nothing was measured.
	Requested  Amount    `json:"requested"`           // CPU and memory that the pods request which the kubelet has admitted, without batch resources.
	Used       *Amount   `json:"used,omitempty"`      // What the node uses, batch work included, as a mean of ten minutes; absent if it is not known.
	Sellable   *Offers   `json:"sellable,omitempty"`  // What could be sold in all, whether it is sold or not, as a mean of ten minutes; absent if it is not known.
	Bound      Offers    `json:"bound"`               // Batch resources that these pods request.

	Scheduling *Scheduling `json:"scheduling,omitempty"` // For schedulers' plugins; absent if the node is not measured.
}

// Scheduling is what a node's containers request of its CPUs, and what they could request more.
type Scheduling struct {
	AllocatableMilliCPU int64   `json:"allocatableMilliCPU"`    // CPUs that pods may have, in thousandths of a CPU.
	OvercommitRatio     float64 `json:"overcommitRatio"`        // What the containers request, batch resources included, divided by that.
	RoomMilliCPU        *int64  `json:"roomMilliCPU,omitempty"` // CPU that new containers can request beside what the pools need, the least of the last 10 to 20 minutes, in thousandths of a CPU; absent if it is not known.
}

// Possible reports whether a node can have these numbers.
func (s *Scheduling) Possible() bool {
	room := int64(0)
	if s.RoomMilliCPU != nil {
		room = *s.RoomMilliCPU
	}
	return min(s.AllocatableMilliCPU, room) >= 0 && max(s.AllocatableMilliCPU, room) <= MaxAmount && s.OvercommitRatio >= 0 && s.OvercommitRatio <= float64(MaxAmount)
}

// Amount is CPU and memory.
type Amount struct {
	MilliCPU    int64 `json:"milliCPU"`    // Thousandths of a CPU.
	MemoryBytes int64 `json:"memoryBytes"` // Bytes.
}

// Offers are the amounts that a node sells. The same idle capacity is in both: what is sold for
// long cannot be sold for now.
type Offers struct {
	ShortTerm Amount `json:"shortTerm"` // Of the resources batch.
	LongTerm  Amount `json:"longTerm"`  // Of the resources mid.
}

// Parse reads an annotation. Anybody who may write to nodes may have written it, so it fails for
// everything that no node can mean. Fields that it does not know are ignored.
func Parse(text string) (*Report, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("annotation %s has %d bytes, and at most %d are read: remove the annotation, and sluice-kube writes it anew", Annotation, len(text), MaxBytes)
	}
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal([]byte(text), &version); err != nil {
		return nil, fmt.Errorf("annotation %s is not the JSON that sluice-kube writes: %w; remove the annotation, and sluice-kube writes it anew", Annotation, err)
	}
	if version.Schema != Schema {
		return nil, fmt.Errorf("annotation %s has schema %d, and this program reads schema %d: use the program of the version that the node runs", Annotation, version.Schema, Schema)
	}
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("annotation %s is not the JSON that sluice-kube writes: %w; remove the annotation, and sluice-kube writes it anew", Annotation, err)
	}
	if s := r.Scheduling; s != nil && !s.Possible() {
		return nil, fmt.Errorf("annotation %s has a number under scheduling that is below 0 or above %d: remove the annotation, and sluice-kube writes it anew", Annotation, MaxAmount)
	}
	for _, f := range r.figures() {
		if f.value < 0 || f.value > MaxAmount {
			return nil, fmt.Errorf("annotation %s has %s of %d, and amounts are from 0 to %d: remove the annotation, and sluice-kube writes it anew", Annotation, f.name, f.value, MaxAmount)
		}
	}
	return &r, nil
}

// Text is the annotation's value.
func (r *Report) Text() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// figure is one number of a report.
type figure struct {
	name  string
	value int64
	least int64 // the smallest change that counts
}

// A number has moved when it differs by a tenth, and by at least these, as in the plugin's offer.
const (
	leastCPU    = 100      // thousandths of a CPU
	leastMemory = 64 << 20 // bytes
)

// figures are all numbers. Those that are not known are 0.
func (r *Report) figures() []figure {
	var used Amount
	if r.Used != nil {
		used = *r.Used
	}
	var sellable Offers
	if r.Sellable != nil {
		sellable = *r.Sellable
	}
	var all []figure
	for _, a := range []struct {
		name   string
		amount Amount
	}{
		{"requested", r.Requested}, {"used", used},
		{"sellable.shortTerm", sellable.ShortTerm}, {"sellable.longTerm", sellable.LongTerm},
		{"bound.shortTerm", r.Bound.ShortTerm}, {"bound.longTerm", r.Bound.LongTerm},
	} {
		all = append(all, figure{a.name + ".milliCPU", a.amount.MilliCPU, leastCPU}, figure{a.name + ".memoryBytes", a.amount.MemoryBytes, leastMemory})
	}
	return all
}

func (r *Report) knowsRoom() bool { return r.Scheduling != nil && r.Scheduling.RoomMilliCPU != nil }

// Moved reports whether a number differs by a tenth or more from an older report, which may be
// nil, or whether something has become known or unknown. Numbers under scheduling come along with
// publications and cause none.
func (r *Report) Moved(old *Report) bool {
	if old == nil || (r.Used == nil) != (old.Used == nil) || (r.Sellable == nil) != (old.Sellable == nil) || r.knowsRoom() != old.knowsRoom() {
		return true
	}
	was := old.figures()
	for i, is := range r.figures() {
		change := is.value - was[i].value
		if max(change, -change) >= max(was[i].value/10, is.least) {
			return true
		}
	}
	return false
}
