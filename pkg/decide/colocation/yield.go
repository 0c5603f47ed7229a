package colocation

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Yielding is what decides whether batch work yields its CPUs to others at once. It does by
// a vendor's group identity. Without one it yields on its own thread by the idle class, where
// all that could compete with it has more weight; and on the other thread of the core by a
// core-scheduling cookie that nothing but batch work has.
type Yielding struct {
	ThreadsPerCore int
	OnlineWeight   int                  // percent, as configured
	Siblings       map[string]*Siblings // by path of their parent
	Raised         map[string]int       // percent in force, by the same path
	SharedGroups   map[string]bool      // core-scheduling groups that hold others than batch work
}

// BatchPod is a pod of batch work with what the kernel has of its settings.
type BatchPod struct {
	QoS        workload.QoS
	Above      string // the cgroup that holds the pod's
	Expelled   bool   // a vendor's kernel keeps it off the CPUs, and off the threads beside CPUs, that others want
	Idle       bool   // it is in the idle class
	Containers []CoreSched
}

// CoreSched is a container's core-scheduling group.
type CoreSched struct {
	Group string // "" none
	Whole bool   // all its processes are in it
}

// Stays tells why a pod doesn't yield its CPUs at once; "" where it does. Where that is
// because services beside it have no more weight than usual, they are returned too.
func (y *Yielding) Stays(p *BatchPod) (why string, beside []Sibling) {
	if p.Expelled {
		return "", nil
	}
	if !p.Idle {
		if p.QoS == workload.Guaranteed || p.QoS == workload.Burstable {
			return fmt.Sprintf("is %s: the kubelet writes its CPU weight, which the kernel refuses in the idle class", p.QoS), nil
		}
		return "isn't in the idle class (cpu.idle)", nil
	}
	if why, beside := y.outweighed(p); why != "" {
		return why, beside
	}
	if y.ThreadsPerCore > 1 {
		return y.besideOthers(p), nil
	}
	return "", nil
}

// outweighed tells why not all that competes with a pod in the idle class has more weight.
func (y *Yielding) outweighed(p *BatchPod) (why string, beside []Sibling) {
	if services := y.services(p.Above); len(services) > 0 && y.Raised[p.Above] <= 100 {
		return y.notRaised(), services
	}
	if !IsBestEffort(p.Above) && !IsBurstable(p.Above) {
		return "", nil
	}
	above := Above(p.Above)
	services := y.services(above)
	switch {
	case len(services) == 0:
		return "", nil
	case len(services) > 1 && slices.ContainsFunc(services, func(s Sibling) bool { return s.Path == p.Above }):
		return "is below " + p.Above + ", which others that aren't batch are in too", nil
	case y.Raised[above] <= 100:
		return y.notRaised(), services
	}
	return "", nil
}

func (y *Yielding) services(parent string) []Sibling {
	if s := y.Siblings[parent]; s != nil {
		return s.Services
	}
	return nil
}

// notRaised tells why services beside batch work have no more weight than usual.
func (y *Yielding) notRaised() string {
	if y.OnlineWeight <= 100 {
		return "has no less weight than usual beside others (control.batch.onlineWeight)"
	}
	return "is beside a cgroup which has so much CPU weight that the kernel has no room for more"
}

// besideOthers tells why a pod's processes may run on the thread beside others than batch
// work; "" where they can't.
func (y *Yielding) besideOthers(p *BatchPod) string {
	for _, c := range p.Containers {
		switch {
		case c.Group == "":
			return "shares cores of two threads with others: it has no core-sched group"
		case y.SharedGroups[c.Group]:
			return fmt.Sprintf("is in the core-sched group %s with others than batch work", c.Group)
		case !c.Whole:
			return fmt.Sprintf("has processes outside of its core-sched group %s", c.Group)
		}
	}
	return ""
}

// SharedGroups are the core-scheduling groups that hold others than batch work.
func SharedGroups(inv *Inventory) map[string]bool {
	groups := map[string]bool{}
	for i := range inv.Containers {
		if c := &inv.Containers[i]; c.Request != nil && c.Request.CoreSched != "" && !c.Is(workload.BE) {
			groups[c.Request.CoreSched] = true
		}
	}
	return groups
}
