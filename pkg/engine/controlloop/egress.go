package controlloop

import (
	"reflect"
	"slices"

	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// senders is what the shaper was told last.
type senders struct {
	told    bool
	view    uint64 // Loop.viewChanges at that time
	link    *egress.Link
	targets []egress.Target
}

// followEgress has the link measured, and the pods of batch work that have a network of their own. Without the mode
// for it nothing is, which also ends limits of an earlier configuration. The link is measured also while there are no
// such pods, so that the first one gets what services left in the last seconds.
func (l *Loop) followEgress() {
	if l.senders.view = l.viewChanges; l.Shaper == nil {
		return
	}
	cfg := &l.Config.Control.Egress
	var link *egress.Link
	var targets []egress.Target
	if l.Authority().Decides(cfg.Mode) {
		link = &egress.Link{Devices: cfg.Interfaces, Speed: observe.BitRate(cfg.LinkSpeed), FloorPercent: cfg.FloorPercent}
		for i := range l.View.Pods {
			p := &l.View.Pods[i]
			if pod := l.View.Members[p.First].Pod; p.Class == workload.BE && !pod.HostNetwork {
				targets = append(targets, egress.Target{UID: p.UID, Process: pod.SandboxPID, Path: pod.NetworkPath})
			}
		}
	}
	s := &l.senders
	if s.told && slices.Equal(targets, s.targets) && reflect.DeepEqual(link, s.link) {
		return
	}
	s.told, s.link, s.targets = true, link, targets
	l.Shaper.Follow(l.ctx, link, targets)
}

// stepEgress limits what pods of batch work send.
func (l *Loop) stepEgress() {
	mode := l.Config.Control.Egress.Mode
	if l.Shaper == nil || !l.Authority().Decides(mode) {
		return
	}
	l.View.Egress = l.Shaper.Latest()
	limits, decided := l.Controllers.Egress.Step(&l.View.View)
	l.Decisions.Add(l.View.Now, l.Authority().Of(mode), decided)
	switch {
	case !l.Authority().Acts(mode):
		l.Shaper.Limit(nil)
	case limits != nil: // before anything is known, limits of an earlier process stay
		l.Shaper.Limit(limits)
	}
}

// egressStatus reports what batch work sends; nil if nothing decides about that.
func (l *Loop) egressStatus() *status.Egress {
	if l.Shaper == nil || !l.begun || !l.Authority().Decides(l.Config.Control.Egress.Mode) {
		return nil
	}
	in := &l.View.Egress
	s := &status.Egress{
		Devices: in.Devices, Speed: in.Speed, Sent: in.Sent, Problem: in.Problem,
		Room: l.Controllers.Egress.Room(), MeasuredAt: in.At,
	}
	for i := range l.View.Pods {
		p := &l.View.Pods[i]
		if p.Class != workload.BE {
			continue
		}
		pod := status.PodEgress{Pod: p.Ref, UID: p.UID}
		if l.View.Members[p.First].Pod.HostNetwork {
			pod.Problem = "it is on the host's network, where Sluice limits nothing"
		} else {
			now := in.Pods[p.UID]
			pod.Sent, pod.Limit, pod.Problem = now.Sent, now.Limit, now.Problem
			s.BatchSent += now.Sent
		}
		s.Pods = append(s.Pods, pod)
	}
	return s
}
