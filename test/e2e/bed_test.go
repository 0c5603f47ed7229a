package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/knobs"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestBed tests the bed of the other tests without Sluice: a pod of each QoS class starts on all
// CPUs, with the kubelet's numbers in its cgroup; an update moves it; a failing runc is reported;
// containers survive a crash and a restart of containerd.
func TestBed(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			rt := start(t, runtime.Options{Containerd: version})
			t.Run("QoS", func(t *testing.T) { testQoS(t, rt) })
			t.Run("knobs", func(t *testing.T) { knobs.Ground(t, &knobs.Bed{RT: rt}) })
			t.Run("update", func(t *testing.T) { testUpdate(t, rt) })
			t.Run("resize", func(t *testing.T) { testResize(t, rt) })
			t.Run("broken runc", func(t *testing.T) { testBroken(t, rt) })
			t.Run("restart", func(t *testing.T) { testRestart(t, rt) })
			t.Run("plugin", func(t *testing.T) { testPlugin(t, rt) })
		})
	}
}

const mib = 1 << 20

func testQoS(t *testing.T, rt *runtime.Runtime) {
	for _, c := range []struct {
		resources runtime.Resources
		qos       workload.QoS
		milli     workload.MilliCPU // as Sluice infers it
	}{
		{runtime.Whole(1500, 64*mib), workload.Guaranteed, 1500},
		{runtime.Resources{CPURequest: 250, MemoryLimit: 64 * mib}, workload.Burstable, 250},
		{runtime.Resources{}, workload.BestEffort, 0},
	} {
		t.Run(c.qos.String(), func(t *testing.T) {
			pod := run(t, rt, runtime.PodSpec{Name: "p", Containers: []runtime.ContainerSpec{{Name: "c", Resources: c.resources}}})
			if pod.QoS != c.qos {
				t.Errorf("pod is %s, want %s", pod.QoS, c.qos)
			}
			seen := workload.Pod{CgroupParent: pod.Cgroup}
			if seen.QoS() != c.qos {
				t.Errorf("%s is read as %s, want %s", pod.Cgroup, seen.QoS(), c.qos)
			}
			first, err := pod.Container("c").First()
			must(t, err)
			all := online(t)
			if first.CPUs != all || first.NumCPU != all.Size() {
				t.Errorf("the first instruction sees CPUs %s (%d), want %s", first.CPUs, first.NumCPU, all)
			}
			if _, v1 := first.Files["cpu.shares"]; v1 {
				if got := inferred(t, seen, first.Files); got != c.milli {
					t.Errorf("request is read as %d milli, want %d; files %v", got, c.milli, first.Files)
				}
			}
			must(t, pod.Remove())
		})
	}
}

func online(t *testing.T) cpuset.Set {
	t.Helper()
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	must(t, err)
	set, err := cpuset.Parse(string(text))
	must(t, err)
	return set
}

func testUpdate(t *testing.T, rt *runtime.Runtime) {
	pod := run(t, rt, runtime.PodSpec{Name: "p", Containers: []runtime.ContainerSpec{{Name: "c", Args: []string{"first", "burn"}}}})
	c := pod.Container("c")
	want := cpuset.Of(online(t).Last())
	must(t, c.Update(&cri.LinuxContainerResources{CpusetCpus: want.String()}))
	if cpus, err := c.CPUs(); err != nil || cpus != want {
		t.Errorf("cpuset is %s (%v), want %s", cpus, err, want)
	}
	if cpus, mems, err := c.Allowed(); err != nil || cpus != want || mems.IsEmpty() {
		t.Errorf("threads may run on %s with memory of %q (%v), want %s", cpus, mems, err, want)
	}
	must(t, pod.Remove())
	if _, err := pod.File("cpu.stat"); err == nil {
		t.Error("a removed pod still has its cgroup")
	}
}

func testResize(t *testing.T, rt *runtime.Runtime) {
	pod := run(t, rt, runtime.PodSpec{Name: "p", Containers: []runtime.ContainerSpec{
		{Name: "a", Resources: runtime.Whole(500, 64*mib)},
		{Name: "b", Resources: runtime.Whole(500, 64*mib)},
	}})
	for _, milli := range []workload.MilliCPU{1500, 200} {
		must(t, pod.Container("a").Resize(runtime.Whole(milli, 64*mib)))
		if got := limit(t, pod.Container("a").File); got != milli {
			t.Errorf("the container's limit is %d milli, want %d", got, milli)
		}
		if got := limit(t, pod.File); got != milli+500 {
			t.Errorf("the pod's limit is %d milli, want %d", got, milli+500)
		}
	}
	must(t, pod.Remove())
}

func testBroken(t *testing.T, rt *runtime.Runtime) {
	pod, err := rt.RunPod(runtime.PodSpec{Name: "p", Handler: runtime.Broken})
	must(t, err)
	_, err = pod.Create(runtime.ContainerSpec{Name: "c", RuncFails: "create"})
	if err == nil {
		err = pod.Container("c").Start()
	}
	if err == nil {
		t.Error("a container whose runc fails create was started")
	}
	c, err := pod.Create(runtime.ContainerSpec{Name: "c", RuncFails: "start"})
	must(t, err)
	if err := c.Start(); err == nil {
		t.Error("a container whose runc fails start was started")
	}
	c, err = pod.Create(runtime.ContainerSpec{Name: "c"})
	must(t, err)
	must(t, c.Start())
	must(t, c.Crash())
	must(t, pod.Remove())
}

func testRestart(t *testing.T, rt *runtime.Runtime) {
	pod := run(t, rt, runtime.PodSpec{Name: "p", Containers: []runtime.ContainerSpec{{Name: "c"}}})
	must(t, rt.Kill())
	must(t, rt.Restart())
	must(t, pod.Container("c").Await(cri.ContainerState_CONTAINER_RUNNING))
	_, _, err := pod.Container("c").Allowed()
	must(t, err)
	must(t, pod.Container("c").Stop())
	must(t, pod.Container("c").Remove())
	must(t, pod.Remove())
}

// testPlugin runs a script as the plugin, and checks that start, kill and stop wait for their
// effects.
func testPlugin(t *testing.T, rt *runtime.Runtime) {
	script := filepath.Join(t.TempDir(), "sluice")
	must(t, os.WriteFile(script, []byte(`#!/bin/sh
trap 'echo stopped; exit 3' TERM
test -S "$5" && echo synchronized
while :; do sleep 0.05; done
`), 0o700))
	s := startSluice(t, rt, runtime.SluiceOptions{Binary: script})
	pid := s.PID()
	must(t, s.Restart())
	if s.PID() == pid {
		t.Error("a restart left the process")
	}
	must(t, s.Stop())
	status, err := s.Wait()
	must(t, err)
	if status != 3 {
		t.Errorf("it ended with status %d, want 3", status)
	}
	must(t, s.AwaitLog("stopped"))
	if got := strings.Count(s.Log(), "synchronized"); got != 2 {
		t.Errorf("the log has %d starts, want 2:\n%s", got, s.Log())
	}
}
