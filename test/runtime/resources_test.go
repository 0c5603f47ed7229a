package runtime

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The numbers equal the kubelet's for the same manifests.
func TestKubeletNumbers(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, c := range []struct {
		name                               string
		containers                         []Resources
		qos                                workload.QoS
		shares, quota, memory, oomScoreAdj int64 // of the first container
		podShares, podQuota, podMemory     int64
	}{
		{"guaranteed", []Resources{Whole(1500, 64*mib)}, workload.Guaranteed, 1536, 150000, 64 * mib, -997, 1536, 150000, 64 * mib},
		{"limits alone", []Resources{{CPULimit: 100, MemoryLimit: mib}}, workload.Guaranteed, 102, 10000, mib, -997, 102, 10000, mib},
		{"one container without limits", []Resources{{CPURequest: 250, CPULimit: 500, MemoryRequest: 256 * mib}, {}}, workload.Burstable, 256, 50000, 0, 750, 256, 0, 0},
		{"best effort", []Resources{{}, {}}, workload.BestEffort, 2, 0, 0, 1000, 2, 0, 0},
		{"the smallest", []Resources{{CPURequest: 1, CPULimit: 1}}, workload.Burstable, 2, 1000, 0, 999, 2, 1000, 0},
		{"beyond the clamp", []Resources{{CPURequest: 300000}}, workload.Burstable, 262144, 0, 0, 999, 262144, 0, 0},
		{"most of the memory", []Resources{{MemoryRequest: 1023 * mib}}, workload.Burstable, 2, 0, 0, 3, 2, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var specs []ContainerSpec
			for _, r := range c.containers {
				specs = append(specs, ContainerSpec{Resources: r})
			}
			qos := qosOf(specs)
			if qos != c.qos {
				t.Errorf("QoS is %s, want %s", qos, c.qos)
			}
			first := c.containers[0].linux(qos, 1024*mib)
			got := [4]int64{first.GetCpuShares(), first.GetCpuQuota(), first.GetMemoryLimitInBytes(), first.GetOomScoreAdj()}
			if want := [4]int64{c.shares, c.quota, c.memory, c.oomScoreAdj}; got != want {
				t.Errorf("container's shares, quota, memory, OOM score are %v, want %v", got, want)
			}
			sum := total(specs)
			pod := [3]int64{shares(sum.CPURequest), quota(sum.CPULimit), sum.MemoryLimit}
			if want := [3]int64{c.podShares, c.podQuota, c.podMemory}; pod != want {
				t.Errorf("pod's shares, quota, memory are %v, want %v", pod, want)
			}
		})
	}
}

func TestIDOf(t *testing.T) {
	t.Parallel()
	for cgroup, want := range map[string]string{
		"kubepods/pod1/abc":                                     "abc",
		"kubepods/pod1/crio-abc":                                "abc",
		"a.slice/a-pod1.slice/crio-abc.scope":                   "abc",
		"a.slice/a-pod1.slice/crio-abc.scope/container":         "abc",
		"a.slice/a-pod1.slice/cri-containerd-abc.scope":         "abc",
		"/sys/fs/cgroup/cpuset/sluicetest-1/kubepods/pod1/f00d": "f00d",
	} {
		if got := idOf(cgroup); got != want {
			t.Errorf("%s is of %s, want %s", cgroup, got, want)
		}
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"/a-pod1.slice/crio-abc.scope/container/cpu.max": "/a-pod1.slice/crio-abc.scope/cpu.max",
		"/a-pod1.slice/crio-abc.scope/cpu.max":           "/a-pod1.slice/crio-abc.scope/cpu.max",
	} {
		if got := Own(file); got != want {
			t.Errorf("%s stands for %s, want %s", file, got, want)
		}
	}
}
