// Package dra tests resource claims on a real kubelet: from the scheduler's allocation to the cpuset of
// the container's first process, and over restarts of all programs.
package dra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	nodeName  = "n1"
	sliceName = "n1-cpus.sluice.dev"
)

// rules are what the chart grants with kube.dra.enabled.
const rules = bed.AgentRules + `
- {apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get]}
- {apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [get, list, watch, create, update, delete]}
`

// classes are the device classes of the chart, and a template of claims for one CPU.
const classes = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: lse.cpus.sluice.dev}
spec:
  selectors: [{cel: {expression: device.driver == 'cpus.sluice.dev'}}]
  config: [{opaque: {driver: cpus.sluice.dev, parameters: {apiVersion: cpus.sluice.dev/v1, kind: CPUClaim, class: LSE}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-cpu, namespace: default}
spec: {spec: {devices: {requests: [{name: cpus, exactly: {deviceClassName: lse.cpus.sluice.dev, capacity: {requests: {cpus: "1"}}}}]}}}
`

// stand is a node whose kubelet prepares claims by Sluice.
type stand struct {
	testing.TB
	*bed.Cluster
	node         *bed.Node
	plugin, kube *bed.Service
	sluice       string // the program
}

// newStand makes a stand, with further flags of the plugin.
func newStand(t testing.TB, flags ...string) *stand {
	t.Helper()
	if v := bed.Version(); v == "1.34" || v == "1.35" {
		t.Skip("SKIPPED: DRAConsumableCapacity is off before Kubernetes 1.36")
	}
	c := bed.API(t)
	s := &stand{TB: t, Cluster: c, node: c.Node(t, nodeName)}
	config := c.Kubeconfig(t, "sluice-kube", c.Agent(t, nodeName, rules))
	bin, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	s.makeFolders(t)
	s.node.Run(t, filepath.Join(bin, "sluice-kube"), "sockets", "--user", "0")
	s.sluice = filepath.Join(bin, "sluice")
	s.plugin = s.node.Program(t, s.sluice, append([]string{"run", "--kube-socket", "/run/sluice-kube/kube.sock", "--cdi-dir", "/var/run/cdi"}, flags...)...)
	s.kube = s.node.Program(t, filepath.Join(bin, "sluice-kube"), "run", "--node-name", nodeName, "--kubeconfig", config, "--dra")
	c.Apply(t, classes)
	return s
}

// makeFolders makes what the chart's pods have in /run.
func (s *stand) makeFolders(t testing.TB) { s.node.Run(t, "mkdir", "-p", "/run/sluice-kube") }

// pod is a pod with a claim for one CPU. Its first process prints the CPUs on which it may run.
func pod(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: mine, resourceClaimTemplateName: one-cpu}]
  containers:
  - {name: main, image: %q, command: [sh, -c, "grep Cpus_allowed_list /proc/self/status; env | grep SLUICE_CLAIM; sleep infinity"],
     env: [{name: ROLE, value: claims}],
     resources: {claims: [{name: mine}], requests: {cpu: "1", memory: 16Mi}, limits: {cpu: "1", memory: 16Mi}}}
`, name, bed.Image)
}

func (s *stand) slice() (*resourceapi.ResourceSlice, error) {
	return s.Client(s.TB).ResourceV1().ResourceSlices().Get(context.Background(), sliceName, metav1.GetOptions{})
}

// awaitSlice waits until the node's device has that capacity.
func (s *stand) awaitSlice(cpus int64) {
	s.Helper()
	bed.Await(s.TB, fmt.Sprintf("a ResourceSlice with %d CPUs", cpus), func() error {
		slice, err := s.slice()
		if err != nil {
			return err
		}
		if n := len(slice.Spec.Devices); n != 1 {
			return fmt.Errorf("it has %d devices", n)
		}
		has := slice.Spec.Devices[0].Capacity["cpus"]
		if has.Value.Value() != cpus {
			return fmt.Errorf("its device has %s CPUs", has.Value.String())
		}
		return nil
	})
}

// pinned checks the CPU that the container's first process printed, and returns it.
func (s *stand) pinned(name string) string {
	s.Helper()
	p := s.AwaitReady(s.TB, "default", name)
	var allowed string
	bed.Await(s.TB, "the output of "+name, func() error {
		for line := range strings.Lines(s.node.Log(p, "main")) {
			if _, list, ok := strings.Cut(line, "Cpus_allowed_list:"); ok {
				allowed = strings.TrimSpace(list)
			}
		}
		if allowed == "" {
			return errors.New("it has printed nothing")
		}
		return nil
	})
	if strings.ContainsAny(allowed, ",-") {
		s.Errorf("the first process of %s may run on CPUs %s, want one", name, allowed)
	}
	if now := s.cpuset(p); now != allowed {
		s.Errorf("%s began on CPU %s, and is on %s", name, allowed, now)
	}
	return allowed
}

func (s *stand) cpuset(p *corev1.Pod) string {
	file := "cpuset.cpus"
	if s.node.V2() {
		file = "cpuset.cpus.effective"
	}
	return s.node.CgroupFile(s.TB, s.node.Cgroup(s.TB, p, "main"), file)
}

// awaitHealth waits until the kubelet shows that health for all that a pod's container was allocated.
func (s *stand) awaitHealth(t *testing.T, name string, want corev1.ResourceHealthStatus) {
	t.Helper()
	began := time.Now()
	bed.Await(t, "the device to be "+string(want), func() error {
		p, err := s.Client(t).CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		devices := 0
		for _, c := range p.Status.ContainerStatuses {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					if devices++; d.Health != want {
						return fmt.Errorf("%s of %s is %s", d.ResourceID, r.Name, d.Health)
					}
				}
			}
		}
		if devices == 0 {
			return errors.New("the status names no device")
		}
		return nil
	})
	t.Logf("%s after %v", want, time.Since(began).Round(100*time.Millisecond))
}

// TestClaims follows claims for one CPU on a node with two, of which one stays with the pools.
func TestClaims(t *testing.T) {
	s := newStand(t)
	began := time.Now()
	s.awaitSlice(1)
	s.Apply(t, pod("one"))
	cpu := s.pinned("one")
	t.Logf("pod one had CPU %s %v after the slice was awaited", cpu, time.Since(began).Round(time.Millisecond))

	t.Run("a second claim waits for the end of the first", func(t *testing.T) {
		s.Apply(t, pod("two"))
		s.awaitTrouble("two", "cannot allocate all claims")
	})

	t.Run("the pod's status has the health of the device", func(t *testing.T) {
		s.awaitHealth(t, "one", corev1.ResourceHealthStatusHealthy)
		s.plugin.Stop(t)
		s.awaitHealth(t, "one", corev1.ResourceHealthStatusUnknown)
		s.plugin.Start(t)
		s.awaitHealth(t, "one", corev1.ResourceHealthStatusHealthy)
	})

	t.Run("restarts keep the claim", func(t *testing.T) {
		one := s.AwaitReady(t, "default", "one")
		for _, program := range []*bed.Service{s.plugin, s.kube, s.node.Kubelet, s.node.Containerd} {
			program.Restart(t)
			bed.Await(t, "the status after the restart", func() error {
				out, err := s.node.Command(s.sluice, "status", "-o", "json").CombinedOutput()
				if err == nil && !strings.Contains(string(out), `"claims"`) {
					err = errors.New("the plugin knows no claims yet")
				}
				return err
			})
			if now := s.cpuset(one); now != cpu {
				t.Errorf("one is on CPU %s, and was on %s", now, cpu)
			}
		}
		s.awaitSlice(1)
		if out := s.node.Run(t, s.sluice, "status", "-o", "json"); !strings.Contains(out, "claim default/one-mine-") {
			t.Errorf("the plugin has forgotten the claim: %s", out)
		}
	})

	t.Run("the second is bound when the first ends", func(t *testing.T) {
		s.Delete(t, pod("one"))
		began := time.Now()
		if again := s.pinned("two"); again != cpu {
			t.Errorf("two is on CPU %s, and one was on %s", again, cpu)
		}
		t.Logf("two was ready %v after one was deleted", time.Since(began).Round(time.Millisecond))
		s.Delete(t, pod("two"))
		bed.Await(t, "the specs of claims to be gone", func() error {
			left, err := os.ReadDir(s.node.Path("/run/cdi"))
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%v is left", left)
			}
			return err
		})
	})

	t.Run("a claim outlives the plugin between its preparation and its container", func(t *testing.T) {
		waits := strings.Replace(pod("three"), "  containers:", `  initContainers:
  - {name: gate, image: `+bed.Image+`, command: [sh, -c, "while ! [ -e /gate/open ]; do sleep 0.1; done"], volumeMounts: [{name: gate, mountPath: /gate}],
     resources: {requests: {cpu: "1", memory: 16Mi}, limits: {cpu: "1", memory: 16Mi}}}
  volumes: [{name: gate, hostPath: {path: /run/gate, type: DirectoryOrCreate}}]
  containers:`, 1)
		s.Apply(t, waits)
		bed.Await(t, "the spec of the claim", func() error {
			made, err := os.ReadDir(s.node.Path("/run/cdi"))
			if err == nil && len(made) == 0 {
				err = errors.New("there is none yet")
			}
			return err
		})
		s.plugin.Restart(t)
		s.kube.Restart(t)
		s.node.Kubelet.Restart(t)
		if err := os.WriteFile(s.node.Path("/run/gate/open"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.pinned("three")
		s.Delete(t, waits)
	})

	t.Run("the token of a node writes no slice of another", func(t *testing.T) {
		client := s.Agent(t, nodeName, rules)
		other := "n2"
		_, err := clientOf(t, client).ResourceV1().ResourceSlices().Create(t.Context(), &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "forged"},
			Spec:       resourceapi.ResourceSliceSpec{Driver: "cpus.sluice.dev", NodeName: &other, Pool: resourceapi.ResourcePool{Name: other, Generation: 1, ResourceSliceCount: 1}},
		}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may only publish a ResourceSlice of that node") {
			t.Errorf("a slice of another node: %v", err)
		}
	})
}
