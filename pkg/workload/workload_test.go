package workload_test

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestQoS finds the QoS class by the name of the pod's cgroup, as both drivers of the kubelet make
// it, also below a cgroup root as in kind.
func TestQoS(t *testing.T) {
	t.Parallel()
	for parent, want := range map[string]workload.QoS{
		"/kubepods/pod1":                               workload.Guaranteed,
		"/kubepods/burstable/pod1":                     workload.Burstable,
		"/kubepods/besteffort/pod1":                    workload.BestEffort,
		"/kubelet/kubepods/pod1":                       workload.Guaranteed,
		"kubepods-pod1.slice":                          workload.Guaranteed,
		"kubepods-burstable-pod1.slice":                workload.Burstable,
		"kubepods-besteffort-pod1.slice":               workload.BestEffort,
		"kubelet-kubepods-pod1.slice":                  workload.Guaranteed,
		"kubelet-kubepods-burstable-pod1.slice":        workload.Burstable,
		"kubelet-kubepods-besteffort-pod1.slice":       workload.BestEffort,
		"/kubepods.slice/kubepods-pod1.slice":          workload.Guaranteed,
		"/k.slice/k-kubepods.slice/k-kubepods-1.slice": workload.Guaranteed,
		"system.slice":                                 workload.UnknownQoS,
		"/pods/pod1":                                   workload.UnknownQoS,
		"pods-pod1.slice":                              workload.UnknownQoS,
		"":                                             workload.UnknownQoS,
	} {
		if got := (&workload.Pod{CgroupParent: parent}).QoS(); got != want {
			t.Errorf("a pod in %q is %s, want %s", parent, got, want)
		}
	}
}
