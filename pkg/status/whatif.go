package status

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ParseRequest reads what a container asks for, with warnings, or says why it is refused.
type ParseRequest func(*workload.Container) (workload.Request, []string, error)

// WhatIf answers what a pod's containers would get, one after another, by entering
// them into the ledger: give it a clone. A container that is Stopped is an init
// container: it gives back its CPUs before the next one starts.
func WhatIf(ledger *placement.Ledger, pod *workload.Pod, containers []workload.Container, parse ParseRequest, now time.Time) []Answer {
	answers := make([]Answer, len(containers))
	for i := range containers {
		c := &containers[i]
		ref := workload.Ref(pod, c)
		r, warnings, err := parse(c)
		answers[i] = Answer{Ref: ref, Class: r.Class, Tier: r.BatchTier(), Keys: r.Keys, Warnings: warnings}
		var as placement.Assignment
		if err == nil {
			// No container of the runtime has a name for its id.
			who := placement.Identity{ID: ref, Pod: pod.UID, Container: c.Name, Ref: ref}
			as, err = ledger.Place(who, r, cpuset.Set{}, now)
		}
		if err != nil {
			answers[i].Problem = err.Error()
			continue
		}
		answers[i].fill(as)
		if c.State == workload.Stopped {
			ledger.Release(ref)
		}
	}
	for i := range answers { // a pin takes CPUs from the containers before it
		if as, ok := ledger.Assignment(answers[i].Ref); ok {
			answers[i].fill(as)
		}
	}
	return answers
}

func (a *Answer) fill(as placement.Assignment) {
	a.CPUs, a.Mems, a.Unlimited, a.Why = as.CPUs, as.Mems, as.Unlimited, as.Why
}
