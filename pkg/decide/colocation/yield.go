package colocation

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Yielding decides whether batch work yields its CPUs at once. With a vendor's group identity
// it does. Otherwise it yields on its own hardware thread through the idle class, if everything
// that competes with it has more weight, and on the sibling thread through a core-scheduling
// cookie that only batch work has.
type Yielding struct {
	ThreadsPerCore int
	OnlineWeight   int                  // configured percentage
	KeepWeights    bool                 // no pod's weight is raised
	Siblings       map[string]*Siblings // by path of their parent
	Raised         map[string]int       // percentage in force, by path of the parent
	SharedGroups   map[string]bool      // core-scheduling groups that contain other containers than batch work
}

// BatchPod is a pod of batch work with its settings in the kernel.
type BatchPod struct {
	QoS        workload.QoS
	Above      string // parent of the pod's cgroup
	Expelled   bool   // a vendor's kernel keeps it off CPUs that others want and off their sibling threads
	Idle       bool   // whether it is in the idle class
	Containers []CoreSched
}

// CoreSched is a container's core-scheduling group.
type CoreSched struct {
	Group string // "" for none
	Whole bool   // whether all processes of the container are in it
}

// Stays returns why a pod does not yield its CPUs at once; the reason is empty if it does. If
// services beside the pod lack the raised weight, it also returns these.
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

// outweighed returns why some competitor of a pod in the idle class does not have more weight;
// "" if all do.
func (y *Yielding) outweighed(p *BatchPod) (why string, beside []Sibling) {
	if services := y.services(p.Above); len(services) > 0 && y.Raised[p.Above] <= 100 {
		return y.notRaised(services), services
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
		return y.notRaised(services), services
	}
	return "", nil
}

func (y *Yielding) services(parent string) []Sibling {
	if s := y.Siblings[parent]; s != nil {
		return s.Services
	}
	return nil
}

// notRaised returns why services beside batch work have only their usual weight.
func (y *Yielding) notRaised(services []Sibling) string {
	switch {
	case y.OnlineWeight <= 100:
		return "has no less weight than usual beside others (control.batch.onlineWeight)"
	case y.KeepWeights && HasPods(services):
		return "is beside " + services[slices.IndexFunc(services, func(s Sibling) bool { return !s.Class })].Path + ", a pod's cgroup, whose weight the kubelet takes for a request (control.batch.onlineWeight)"
	}
	return "is beside a cgroup which has so much CPU weight that the kernel has no room for more"
}

// besideOthers returns why a pod's processes may run on the sibling thread of other work than
// batch; "" if they can't.
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

// SharedGroups returns the core-scheduling groups that contain other containers than batch
// work.
func SharedGroups(inv *Inventory) map[string]bool {
	groups := map[string]bool{}
	for i := range inv.Containers {
		if c := &inv.Containers[i]; c.Request != nil && c.Request.CoreSched != "" && !c.Is(workload.BE) {
			groups[c.Request.CoreSched] = true
		}
	}
	return groups
}
