// Package selling decides which amounts of batch resources a node publishes to Kubernetes, and
// when. It is pure: time is an argument, and somebody else writes to the API server.
package selling

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
)

// Kind is one of the amounts that a node sells.
type Kind int

// These are the kinds. CPU is in thousandths of a CPU unless whole CPUs are named, memory in bytes.
const (
	BatchCPU    Kind = iota // from the short-term offer
	BatchMemory             // from the short-term offer
	MidCPU                  // from the long-term offer
	MidMemory               // from the long-term offer
	Pins                    // whole CPUs for containers with CPUs of their own
	kinds
)

// Amounts holds an amount of each kind.
type Amounts [kinds]int64

// Most is the largest amount that is believed, of one kind: 4.5 trillion CPUs, or 4 PiB. Sums
// of a node's pods cannot overflow with it.
const Most = nodereport.MaxAmount

// Dialect is whose names the resources have.
type Dialect string

// These are the dialects.
const (
	Sluice      Dialect = "sluice"
	Koordinator Dialect = "koordinator"
	Katalyst    Dialect = "katalyst"
)

// Dialects lists all dialects, the default first.
func Dialects() []Dialect { return []Dialect{Sluice, Koordinator, Katalyst} }

// ParseDialect returns the dialect of that name.
func ParseDialect(name string) (Dialect, error) {
	if slices.Contains(Dialects(), Dialect(name)) {
		return Dialect(name), nil
	}
	return "", fmt.Errorf("there are no resource names of %q: use sluice, koordinator or katalyst", name)
}

// PinnableCPU is the resource of the kind Pins, in every dialect.
const PinnableCPU = "sluice.dev/pinnable-cpu"

// Names returns the names of the batch resources by kind. A kind without a name is not sold.
//
// Koordinator's are those of its apis/extension/resource.go, Katalyst's those of
// consts.ReclaimedResourceMilliCPU and ReclaimedResourceMemory in katalyst-api. All of them
// count CPU in thousandths, because Kubernetes allows only integers.
func (d Dialect) Names() map[Kind]string {
	switch d {
	case Koordinator:
		return map[Kind]string{
			BatchCPU: "kubernetes.io/batch-cpu", BatchMemory: "kubernetes.io/batch-memory",
			MidCPU: "kubernetes.io/mid-cpu", MidMemory: "kubernetes.io/mid-memory",
		}
	case Katalyst:
		return map[Kind]string{
			BatchCPU:    "resource.katalyst.kubewharf.io/reclaimed_millicpu",
			BatchMemory: "resource.katalyst.kubewharf.io/reclaimed_memory",
		}
	}
	return map[Kind]string{
		BatchCPU: "batch.sluice.dev/cpu", BatchMemory: "batch.sluice.dev/memory",
		MidCPU: "mid.sluice.dev/cpu", MidMemory: "mid.sluice.dev/memory",
	}
}
