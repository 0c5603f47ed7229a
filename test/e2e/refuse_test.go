package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// refused tries to create the pod's container and returns why it was refused. The refusal must
// change nothing in the plugin or in other containers.
func refused(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice, spec runtime.PodSpec) string {
	t.Helper()
	pod, err := rt.RunPod(spec)
	must(t, err)
	before, err := rt.Settings()
	must(t, err)
	was := statusOf(t, s)
	_, err = pod.Create(spec.Containers[0])
	if err == nil {
		t.Fatal("the container was created")
	}
	after, readErr := rt.Settings()
	must(t, readErr)
	if changed := before.Differences(after); len(changed) > 0 {
		t.Errorf("the refusal changed %q", changed)
	}
	is := statusOf(t, s)
	if len(is.Containers) != len(was.Containers) || is.Machine.Pinned != was.Machine.Pinned {
		t.Errorf("the refusal changed the containers from %v to %v", was.Containers, is.Containers)
	}
	if is.Counters.Refused != was.Counters.Refused+1 {
		t.Errorf("%d refusals are counted, want %d", is.Counters.Refused, was.Counters.Refused+1)
	}
	must(t, pod.Remove())
	return err.Error()
}

func testSecondPin(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	first, cpu := pinOf(t, rt, "first", "LSE")
	second := classed("second", "LSR", runtime.Whole(1000, 64*mib))
	says(t, refused(t, rt, s, second), "kube-system/second/c", "1 CPU of its own", "would leave 0", "need 1")

	second.Containers[0].Resources = runtime.Whole(2000, 64*mib)
	says(t, refused(t, rt, s, second), "kube-system/second/c", "2 CPUs needed, 1 free (", "kube-system/first/c ("+cpu.String()+")")

	must(t, first.Remove())
	pinOf(t, rt, "second", "LSR")
}

func testInvalid(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice) {
	for _, c := range []struct {
		name        string
		annotations map[string]string
		cpu         workload.MilliCPU
		says        []string
	}{
		{"fraction", map[string]string{"class.sluice.dev": "LSR"}, 500, []string{`class.sluice.dev = "LSR"`, "requests 500m", "request 1"}},
		{"unknown key", map[string]string{"clas.sluice.dev": "LSR"}, 1000, []string{`"clas.sluice.dev" = "LSR"`, "did you mean class?"}},
		{"unknown value", map[string]string{"class.sluice.dev/container.c": "LSX"}, 1000, []string{`class.sluice.dev/container.c = "LSX"`, "LSE, LSR, LS"}},
		{"more than the grant", map[string]string{"class.sluice.dev": "LSR", "cpus.sluice.dev": "2"}, 1000, []string{`cpus.sluice.dev = "2"`, "request of 1000m"}},
		{"SYSTEM elsewhere", map[string]string{"class.sluice.dev": "SYSTEM"}, 1000, []string{`class.sluice.dev = "SYSTEM"`, "not allowed in namespace default"}},
		{"CPUs that are not there", map[string]string{"class.sluice.dev": "LSR", "cpuset.sluice.dev": "4095"}, 1000, []string{"4095", "not online", "online: " + online(t).String()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := classed("p", "", runtime.Whole(c.cpu, 64*mib))
			spec.Namespace, spec.Annotations = "", maps.Clone(c.annotations)
			says(t, refused(t, rt, s, spec), append(c.says, "container default/p/c")...)
		})
	}
}

// says checks that a message contains all parts.
func says(t *testing.T, message string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(message, part) {
			t.Errorf("the message lacks %q: %s", part, message)
		}
	}
	if _, own, _ := strings.Cut(message, "sluice: "); strings.Contains(own, "/c: container ") {
		t.Errorf("the message names the container twice: %s", message)
	}
}
