package agent

import (
	"context"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// TestSystemdRewrites checks that the kernel's defaults, which systemd writes to a scope with each
// update for settings that it doesn't know, are repaired every time and do not count as another
// program's change.
func TestSystemdRewrites(t *testing.T) {
	onFlavour(t, fakekernel.MainlineV2(), knobSetup{}, func(t *testing.T, h *knobNode) {
		const slice, scope = "/kubepods.slice/kubepods-podweb.slice", "/kubepods.slice/kubepods-podweb.slice/cri-containerd-a.scope"
		pod := &workload.Pod{ID: "sandbox-web", UID: "web", Namespace: "ns", Name: "web", CgroupParent: "kubepods-podweb.slice", Annotations: map[string]string{
			"class.sluice.dev": "LS", "memory-qos.sluice.dev": "{minPercent: 100, oomGroup: true}", "io.sluice.dev": "{weight: 50}",
		}}
		c := workload.Container{ID: "a", PodID: pod.ID, Name: "a", CgroupsPath: "kubepods-podweb.slice:cri-containerd:a", Resources: workload.Resources{
			Shares: 1024, Quota: 100000, Period: 100000, MemoryLimit: 64 * mebi,
		}}
		if _, _, err := h.agent.CreateContainer(context.Background(), pod, c); err != nil {
			t.Fatal(err)
		}
		h.Mkdir(slice)
		h.Mkdir(scope)
		if err := h.Populate(scope, 1); err != nil {
			t.Fatal(err)
		}
		c.State, c.PID = workload.Running, 1000
		if err := h.agent.StartContainer(context.Background(), pod, c); err != nil {
			t.Fatal(err)
		}
		files := []struct{ name, want, systemd string }{
			{"memory.min", itoa(64 * mebi), "0"},
			{"memory.oom.group", "1", "0"},
			{"io.weight", "default 50", "default 100"},
		}
		for round := range 20 {
			for _, file := range files {
				if got := h.get(scope, file.name); got != file.want {
					t.Fatalf("%s is %s after %d updates, want %s", file.name, got, round, file.want)
				}
			}
			if _, err := h.agent.UpdateContainer(context.Background(), pod, c, workload.Resources{Quota: 100000, Period: 100000}); err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				h.put(scope, file.name, file.systemd)
			}
			if err := h.agent.PostUpdateContainer(c.ID); err != nil {
				t.Fatal(err)
			}
			h.pass()
		}
		h.calm(t)
	})
}
