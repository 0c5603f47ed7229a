// Package knobs describes changes of control files as data: which knob of which object changes
// from what to what, and why. It computes an order in which the changes are safe. Other
// packages carry them out.
package knobs

import "github.com/sluice-dev/sluice/topology/cpuset"

// Object is a cgroup with knobs: a container's or a pod's own.
type Object struct {
	Path  string // cgroup below each controller's root: "/kubepods/pod1/abc"
	Name  string // "namespace/pod/container" or "namespace/pod", for messages
	Level Level
}

// Level is an object's place in the hierarchy.
type Level uint8

// The levels are listed from the root down.
const (
	ClassLevel Level = iota // cgroups that hold pods: kubepods and its QoS classes
	PodLevel
	ContainerLevel
)

// Value is the value of a knob. Its type is the one that the knob's documentation names. Values
// are comparable.
type Value interface {
	String() string
}

// CPUSet is a cpuset value. The empty set stands for all that the parent has.
type CPUSet cpuset.Set

func (s CPUSet) String() string {
	if (s == CPUSet{}) {
		return "all"
	}
	return cpuset.Set(s).String()
}

// Change sets one knob of one object.
type Change struct {
	Object Object
	Knob   Knob
	From   Value // nil if unknown
	To     Value
	Why    string
}
