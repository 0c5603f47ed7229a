package controlloop

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/objectives"
)

// followObjectives enters how fast the pods with a latency objective answer, and has them read.
func (l *Loop) followObjectives() {
	if l.Latencies == nil {
		return
	}
	var targets []objectives.Target
	if l.Authority().Decides(l.Config.Control.SLO.Mode) {
		for i := range l.View.Pods {
			if p := &l.View.Pods[i]; p.SLO.Latency.Bound > 0 {
				targets = append(targets, objectives.Target{UID: p.UID, Address: l.addressOf(p), Objective: p.SLO.Latency})
			}
		}
	}
	if !slices.Equal(targets, l.objectives) {
		l.objectives = targets
		l.Latencies.Follow(l.ctx, targets)
	}
	if len(targets) > 0 {
		l.View.SetLatencies(l.Latencies.Latest())
	}
}

// addressOf returns a pod's address; "" if it can't be reached.
func (l *Loop) addressOf(p *control.Pod) string {
	pod := l.View.Members[p.First].Pod
	switch {
	case len(pod.IPs) > 0:
		return pod.IPs[0]
	case pod.HostNetwork && l.OnHostNetwork:
		return "127.0.0.1"
	}
	return ""
}
