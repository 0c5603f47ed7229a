package podsettings

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Why a host application is not managed.
const (
	noHostCgroup   = "its cgroup does not exist (in the CPU controller's hierarchy)"
	hostCgroupPods = "its cgroup holds pods, or is in that of a pod: "
)

// FindHosts looks for the cgroups of the configured host applications, and reports whether others
// exist than before.
func (s *Settings) FindHosts() (changed bool) {
	var found []colocation.HostApplication
	for i := range s.Config.Control.HostApplications {
		a := &s.Config.Control.HostApplications[i]
		if s.HostProblem(a) == "" {
			_, err := s.Kernel.Read(a.Cgroup, knobs.MemoryMax)
			found = append(found, colocation.HostApplication{HostApplication: a, HoldsMemory: err == nil})
		}
	}
	changed = !slices.Equal(found, s.hosts)
	s.hosts = found
	return changed
}

// HostProblem tells why a host application is not managed now; "" if it is.
func (s *Settings) HostProblem(a *control.HostApplication) string {
	if s.Kernel == nil {
		return noHostCgroup
	}
	if _, err := s.Kernel.Read(a.Cgroup, knobs.Quota); err != nil {
		return noHostCgroup
	}
	for _, c := range s.Order {
		for _, dir := range []string{c.Path, c.PodPath} {
			if dir != "" && (control.IsWithin(dir, a.Cgroup) || control.IsWithin(a.Cgroup, dir)) {
				return hostCgroupPods + c.PodRef
			}
		}
	}
	return ""
}

// DeclareHosts writes the settings of host applications after FindHosts found others.
func (s *Settings) DeclareHosts() {
	if s.Kernel == nil {
		return
	}
	s.declareParents()
	s.Reconciler.Apply()
}

// withHosts adds the settings of host applications, which have the lowest CPU priority, like pods of
// batch work.
func (s *Settings) withHosts(groups []qos.Group) []qos.Group {
	for _, a := range s.hosts {
		request := workload.Request{Class: workload.BE}
		request.Identity = workload.Some(-1)
		settings := qos.For(&s.QoS, &qos.Pod{QoS: workload.BestEffort, Quota: knobs.UnlimitedQuota(), Containers: []qos.Container{{Request: request}}})
		groups = append(groups, qos.Group{Path: a.Cgroup, Settings: settings.Pod})
	}
	return groups
}
