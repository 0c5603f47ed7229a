// Package knobs says what is to be changed in the kernel, as data: which knob of
// which object, from what, to what, and why. It computes the order in which
// changes are safe; others carry them out.
package knobs

import "github.com/sluice-dev/sluice/topology/cpuset"

// Object is a cgroup that carries knobs: a container's, or a pod's own.
type Object struct {
	Path  string // cgroup below each controller's root: "/kubepods/pod1/abc"
	Name  string // for people: "namespace/pod/container" or "namespace/pod"
	Level Level
}

// Level is an object's place in the hierarchy.
type Level uint8

// The levels, from the root down.
const (
	ClassLevel Level = iota // what holds pods: kubepods and its QoS classes
	PodLevel
	ContainerLevel
)

// Value is what a knob is set to, of the type that the knob's documentation
// names. Values are comparable.
type Value interface {
	String() string
}

// CPUSet is a cpuset value. The empty set means: all that the parent has.
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
	From   Value // nil where unknown
	To     Value
	Why    string
}
