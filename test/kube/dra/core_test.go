package dra

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// byResource is a pod that asks for cores by the extended resource, and names no claim. Its first process
// prints the CPUs on which it may run.
func byResource(name string, cores, cpus int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, command: [sh, -c, "grep Cpus_allowed_list /proc/self/status; sleep infinity"],
     resources: {limits: {lse.cpus.sluice.dev/core: "%d", cpu: "%d", memory: 16Mi}}}
`, name, bed.Image, cores, cpus)
}

// coreClass is the device class of the chart with kube.dra.devices: core.
const coreClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: lse.cpus.sluice.dev}
spec:
  extendedResourceName: lse.cpus.sluice.dev/core
  selectors: [{cel: {expression: device.driver == 'cpus.sluice.dev'}}]
  config: [{opaque: {driver: cpus.sluice.dev, parameters: {apiVersion: cpus.sluice.dev/v1, kind: CPUClaim, class: LSE}}}]
`

// A pod that writes nothing but limits gets a core of its own, on a node with two of which one stays with
// the pools. A second one waits for it, and more cores than the node has are never given.
func TestCoresByAnExtendedResource(t *testing.T) {
	s := newStand(t, "--claim-devices", "core")
	s.Apply(t, coreClass)
	s.awaitSlice(1)
	slice, err := s.slice()
	if err != nil {
		t.Fatal(err)
	}
	device := slice.Spec.Devices[0]
	if !strings.HasPrefix(device.Name, "core") || device.AllowMultipleAllocations != nil || *device.Attributes["kind"].StringValue != "core" {
		t.Errorf("the device is %+v", device)
	}
	s.Apply(t, byResource("many", 2, 2))
	s.awaitTrouble("many", "cannot allocate all claims")
	s.Apply(t, byResource("one", 1, 1))
	cpu := s.pinned("one")
	if "core"+cpu != device.Name {
		t.Errorf("pod one has CPU %s, and the device is %s", cpu, device.Name)
	}
	p, err := s.Client(t).CoreV1().Pods("default").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || p.Status.ExtendedResourceClaimStatus == nil || p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("pod one has no claim, or is not Guaranteed: %+v: %v", p.Status, err)
	}
	s.Apply(t, byResource("two", 1, 1))
	s.awaitTrouble("two", "cannot allocate all claims")
	s.Delete(t, byResource("one", 1, 1))
	if again := s.pinned("two"); again != cpu {
		t.Errorf("pod two has CPU %s, and pod one had %s", again, cpu)
	}

	// The plugin starts again with another kind of devices: the claim keeps its core, and no device has it.
	s.plugin.Stop(t)
	s.plugin = s.node.Program(t, s.sluice, "run", "--kube-socket", "/run/sluice-kube/kube.sock", "--cdi-dir", "/var/run/cdi", "--claim-devices", "l3")
	s.Apply(t, pod("three"))
	s.awaitTrouble("three", "cannot allocate all claims")
	two := s.AwaitReady(t, "default", "two")
	if now := s.cpuset(two); now != cpu {
		t.Errorf("pod two is on CPU %s, and was on %s", now, cpu)
	}
	s.Delete(t, byResource("two", 1, 1))
	t.Logf("pod three has CPU %s by the L3 domain", s.pinned("three"))
}

// awaitTrouble waits until a pod says why it does not run.
func (s *stand) awaitTrouble(name, want string) {
	s.Helper()
	bed.Await(s.TB, "the reason of pod "+name, func() error {
		p, err := s.Client(s.TB).CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if trouble := bed.Trouble(p); !strings.Contains(trouble, want) {
			return errors.New(trouble)
		}
		return nil
	})
}
