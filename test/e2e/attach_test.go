package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestPreInstalled lets the runtime start the plugin from its plugin folder, with its
// configuration there, also when the runtime starts again after a crash.
func TestPreInstalled(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			dir := t.TempDir()
			socket := filepath.Join(dir, "status.sock")
			options, err := runtime.Options{Containerd: version}.Preinstall(dir, "10", fmt.Sprintf(
				"stateDir: %s\nruntimeDir: %s\nstatusSocket: %s\nlog: {file: %s}\n", filepath.Join(dir, "state"), filepath.Join(dir, "run"), socket, filepath.Join(dir, "sluice.log")))
			must(t, err)
			rt := start(t, options)
			connected := func(after time.Time) (since time.Time) {
				t.Helper()
				await(t, "the plugin that the runtime launched answers", func() bool {
					st, err := statusapi.NewClient(socket).Status()
					since = st.Runtime.ChangedAt
					return err == nil && st.Runtime.Connected && since.After(after)
				})
				return since
			}
			first := connected(time.Time{})
			_, cpu := pinOf(t, rt, "pin", "LSR")
			must(t, rt.Restart())
			connected(first)
			after := run(t, rt, classed("after", "LS", runtime.Resources{})).Container("c")
			if cpus, err := after.CPUs(); err != nil || cpus.Overlaps(cpu) {
				t.Errorf("a container of after the restart is on CPUs %s (%v), a pin of before it on %s", cpus, err, cpu)
			}
		})
	}
}

// TestFailurePolicy checks a plugin that wants requests to fail in its absence, which containerd
// 2.4 with NRI 0.12.3 doesn't support: the runtime continues, and Sluice says so. The runtime's
// own validator can require the plugin.
func TestFailurePolicy(t *testing.T) {
	rt := start(t, runtime.Options{Config: `
[plugins.'io.containerd.nri.v1.nri'.default_validator]
  enable = true
`})
	s := startSluice(t, rt, runtime.SluiceOptions{Config: "failurePolicy: closed"})
	if nri := statusOf(t, s).Runtime.NRIVersion; nri != "v0.12.3" {
		t.Fatalf("the runtime has NRI %s: this test is about v0.12.3", nri)
	}
	must(t, s.AwaitLog("failurePolicy: closed has no effect"))
	requires := runtime.PodSpec{
		Name: "requires", Annotations: map[string]string{"required-plugins.noderesource.dev": `["sluice"]`},
		Containers: []runtime.ContainerSpec{{Name: "c"}},
	}
	run(t, rt, requires)
	must(t, s.Kill())
	run(t, rt, classed("open", "LSR", runtime.Whole(1000, 64*mib)))
	requires.Name = "refused"
	if _, err := rt.Run(requires); err == nil || !strings.Contains(err.Error(), "sluice") {
		t.Errorf("a pod that requires the plugin was created without it (%v)", err)
	}
}

// TestUntouched installs Sluice with the shipped configuration beside pods that ask for nothing.
// No file of theirs differs from what it is without Sluice.
func TestUntouched(t *testing.T) {
	for _, version := range newest {
		t.Run(nameOf(version), func(t *testing.T) { testUntouched(t, start(t, runtime.Options{Containerd: version})) })
	}
}

func testUntouched(t *testing.T, rt *runtime.Runtime) {
	pods := []runtime.PodSpec{
		{Name: "guaranteed", Containers: []runtime.ContainerSpec{{Name: "c", Resources: runtime.Whole(500, 64*mib)}}},
		{Name: "burstable", Containers: []runtime.ContainerSpec{{Name: "c", Resources: runtime.Resources{CPURequest: 250, MemoryLimit: 64 * mib}}}},
		{Name: "besteffort", Namespace: "kube-system", Containers: []runtime.ContainerSpec{{Name: "c"}}},
	}
	settings := func(pod *runtime.Pod) runtime.Dump {
		t.Helper()
		all, err := pod.Settings()
		must(t, err)
		named := runtime.Dump{}
		for file, value := range all {
			named[strings.NewReplacer(pod.Cgroup, "/pod", pod.Container("c").ID, "c", pod.ID, "pause").Replace(file)] = value
		}
		if len(named) < 50 {
			t.Fatalf("only %d files were read", len(named))
		}
		return named
	}
	without := map[string]runtime.Dump{}
	running := map[string]*runtime.Pod{}
	for _, spec := range pods {
		running[spec.Name] = run(t, rt, spec)
		without[spec.Name] = settings(running[spec.Name])
	}
	s := startSluice(t, rt, runtime.SluiceOptions{})
	for _, spec := range pods {
		if changed := without[spec.Name].Differences(settings(running[spec.Name])); len(changed) > 0 {
			t.Errorf("installing Sluice changed pod %s: %q", spec.Name, changed)
		}
		pod := run(t, rt, spec)
		if changed := without[spec.Name].Differences(settings(pod)); len(changed) > 0 {
			t.Errorf("with Sluice a new pod %s is different: %q", spec.Name, changed)
		}
		must(t, pod.Container("c").Resize(spec.Containers[0].Resources))
		if changed := without[spec.Name].Differences(settings(pod)); len(changed) > 0 {
			t.Errorf("with Sluice an updated pod %s is different: %q", spec.Name, changed)
		}
	}
	consistent(t, rt, s)
}
