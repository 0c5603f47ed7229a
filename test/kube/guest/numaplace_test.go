package guest

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// numaSession is a cluster with the guest as its node, where claims and pins have CPUs.
type numaSession struct {
	*session
	numa   []cpuset.Set     // CPUs of the NUMA nodes
	placed map[string]place // of the running pods that have CPUs of their own
}

// place is what a pod has.
type place struct {
	cpus cpuset.Set
	node int    // the NUMA node
	card string // of the other driver; "" if it has none
	id   string // of its container
}

// shows is the command of containers that print what they may use before they do anything else.
const shows = `[sh, -c, "env | grep ^NIC=; grep _allowed_list /proc/self/status; sleep infinity"]`

func template(cpus int) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: cpus-%d, namespace: default}
spec: {spec: {devices: {requests: [{name: cpus, exactly: {deviceClassName: lse.cpus.sluice.dev, capacity: {requests: {cpus: "%[1]d"}}}}]}}}
`, cpus)
}

// claim makes a pod with a claim for that many CPUs.
func (s *numaSession) claim(t *testing.T, name string, cpus int) {
	t.Helper()
	s.claimWith(t, name, cpus, "16Mi")
}

func (s *numaSession) claimWith(t *testing.T, name string, cpus int, memory string) {
	t.Helper()
	s.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: mine, resourceClaimTemplateName: cpus-%d}]
  containers:
  - {name: main, image: %q, command: %s,
     resources: {claims: [{name: mine}], requests: {cpu: %[2]d, memory: %[5]s}, limits: {cpu: %[2]d, memory: %[5]s}}}
`, name, cpus, bed.Image, shows, memory))
}

// bound makes a pod with a claim, and waits until the scheduler has found a place for it.
func (s *numaSession) bound(t *testing.T, name string, cpus int) {
	t.Helper()
	s.claim(t, name, cpus)
	bed.Await(t, "pod "+name+" to be bound", func() error {
		pod, err := s.Client(t).CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName == "" {
			err = errors.New(bed.Trouble(pod))
		}
		return err
	})
}

// takeAll makes claims for all CPUs that the NUMA nodes have left, the largest first.
func (s *numaSession) takeAll(t *testing.T, left []int64) {
	t.Helper()
	slices.Sort(left)
	var names []string
	for i, cpus := range slices.Backward(left) {
		if cpus > 0 {
			names = append(names, fmt.Sprintf("rest-%d", i))
			s.bound(t, names[len(names)-1], int(cpus))
		}
	}
	for _, name := range names {
		s.awaitPlaced(t, name)
	}
}

// pinned starts a pod of the class with the first CPUs of a NUMA node, by annotation.
func (s *numaSession) pinned(t *testing.T, name, class string, node, cpus int) {
	t.Helper()
	var set cpuset.Set
	for cpu := range s.numa[node].All() {
		if set.Size() < cpus {
			set.Add(cpu)
		}
	}
	s.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {class.sluice.dev: %s, cpuset.sluice.dev: %q}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, command: %s, resources: {requests: {cpu: %d, memory: 16Mi}, limits: {cpu: %[6]d, memory: 16Mi}}}
`, name, class, set, bed.Image, shows, cpus))
	if has := s.awaitShown(t, name); has.cpus != set {
		t.Errorf("pod %s has CPUs %s, want %s", name, has.cpus, set)
	}
}

// awaitPlaced waits until a pod with a claim is ready, and checks that it has what the scheduler has allocated.
func (s *numaSession) awaitPlaced(t *testing.T, name string) place {
	t.Helper()
	has := s.awaitShown(t, name)
	pod, err := s.Client(t).CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || len(pod.Status.ResourceClaimStatuses) != 1 {
		t.Fatalf("pod %s has claims %+v: %v", name, pod.Status.ResourceClaimStatuses, err)
	}
	claim, err := s.Client(t).ResourceV1().ResourceClaims("default").Get(t.Context(), *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		amount := r.ConsumedCapacity["cpus"]
		if want := fmt.Sprintf("numa%d", has.node); r.Driver == "cpus.sluice.dev" && (r.Device != want || amount.Value() != int64(has.cpus.Size())) {
			t.Errorf("pod %s has CPUs %s of %s, and the scheduler has allocated %s CPUs of %s", name, has.cpus, want, amount.String(), r.Device)
		}
	}
	return has
}

// awaitShown waits until a pod is ready, and returns what its container has in the kernel, and its first process had: CPUs
// of one NUMA node, with its memory, and that of the nearest if the pod requests more.
func (s *numaSession) awaitShown(t *testing.T, name string) place {
	t.Helper()
	began := time.Now()
	pod := s.AwaitReady(t, "default", name)
	var shown map[string]string
	bed.Await(t, "the output of "+name, func() error {
		shown = map[string]string{}
		text, err := s.Client(t).CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.Replace(strings.TrimSpace(line), "=", ":", 1), ":")
			shown[key] = strings.TrimSpace(value)
		}
		if err == nil && shown["Mems_allowed_list"] == "" {
			err = fmt.Errorf("it has printed %q", text)
		}
		return err
	})
	cpus, err := cpuset.Parse(shown["Cpus_allowed_list"])
	if err != nil {
		t.Fatal(err)
	}
	node := slices.IndexFunc(s.numa, cpus.SubsetOf)
	has := place{cpus: cpus, node: node, card: shown["NIC"], id: path.Base(s.node.Cgroup(t, pod, "main"))}
	requests := pod.Spec.Containers[0].Resources.Requests
	mems := cpuset.Of(max(0, node))
	if requests.Memory().Value() > int64(numaMachine.MemoryPerNode())<<20 {
		mems.Add(node ^ 1) // on the same socket
	}
	if wants := int(requests.Cpu().Value()); cpus.Size() != wants || node < 0 || shown["Mems_allowed_list"] != mems.String() {
		t.Errorf("pod %s began on CPUs %s with memory of NUMA nodes %s, want %d CPUs of one NUMA node, and memory of %s", name, cpus, shown["Mems_allowed_list"], wants, mems)
	}
	if now := s.cpusets(t)[has.id]; now != [2]string{cpus.String(), mems.String()} {
		t.Errorf("pod %s began on CPUs %s with memory of NUMA nodes %s, and its cgroup has %q", name, cpus, mems, now)
	}
	s.placed[name] = has
	t.Logf("pod %s has CPUs %s of NUMA node %d after %s", name, cpus, node, time.Since(began).Round(100*time.Millisecond))
	return has
}

// cpusets reads the CPUs and memory nodes of the guest's containers, by their cgroups' names.
func (s *numaSession) cpusets(t *testing.T) map[string][2]string {
	t.Helper()
	out := s.node.Run(t, "cd /sys/fs/cgroup/kubepods.slice; find . -name 'cri-containerd-*.scope' | while read -r scope; do "+
		"echo $scope $(cat $scope/cpuset.cpus.effective) $(cat $scope/cpuset.mems.effective); done")
	all := map[string][2]string{}
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 3 {
			all[path.Base(words[0])] = [2]string{words[1], words[2]}
		}
	}
	return all
}

// alone checks that each pod's CPUs are those that it began with, and that no other container of a pod has one of them.
func (s *numaSession) alone(t *testing.T) {
	t.Helper()
	pods, err := s.Client(t).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now := s.cpusets(t)
	sets := map[string]cpuset.Set{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, container := range pod.Spec.Containers {
			if !bed.Ready(pod) {
				continue
			}
			files := now[path.Base(s.node.Cgroup(t, pod, container.Name))]
			set, err := cpuset.Parse(files[0])
			if err != nil || set.IsEmpty() {
				t.Errorf("container %s of pod %s has CPUs %q: %v", container.Name, pod.Name, files[0], err)
			}
			if has, own := s.placed[pod.Name]; own && set != has.cpus {
				t.Errorf("pod %s has CPUs %s, and began on %s", pod.Name, set, has.cpus)
			}
			sets[pod.Name+"/"+container.Name] = set
		}
	}
	names := slices.Sorted(maps.Keys(sets))
	if len(names) < len(s.placed)+2 { // Sluice's own
		t.Errorf("the containers that run are %v", names)
	}
	for name, has := range s.placed {
		for _, other := range names {
			if other != name+"/main" && sets[other].Overlaps(has.cpus) {
				t.Errorf("pod %s has CPUs %s, and container %s has %s", name, has.cpus, other, sets[other])
			}
		}
	}
}

// awaitRefused waits until the scheduler has said why it finds no place for a pod.
func (s *numaSession) awaitRefused(t *testing.T, name string) {
	t.Helper()
	bed.Await(t, "the scheduler's reason for "+name, func() error {
		pod, err := s.Client(t).CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		trouble := bed.Trouble(pod)
		if pod.Status.Phase != corev1.PodPending || !strings.Contains(trouble, "cannot allocate all claims") {
			return errors.New(trouble)
		}
		t.Logf("pod %s waits: %s", name, trouble)
		return nil
	})
}

// renewPlugin deletes the plugin's pod, and waits until its successor is ready.
func (s *numaSession) renewPlugin(t *testing.T) {
	t.Helper()
	old := s.plugin(t)
	api := s.Client(t).CoreV1().Pods(namespace)
	if err := api.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	bed.Await(t, "the plugin's new pod", func() error {
		_, err := api.Get(t.Context(), old.Name, metav1.GetOptions{})
		if err := bed.Gone(err); err != nil {
			return err
		}
		pods, err := api.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
		if err == nil && (len(pods.Items) != 1 || !bed.Ready(&pods.Items[0])) {
			err = errors.New(s.trouble(t))
		}
		return err
	})
	t.Logf("the plugin's new pod is ready after %s", time.Since(began).Round(100*time.Millisecond))
}

// end deletes a pod, and waits until it is gone.
func (s *numaSession) end(t *testing.T, names ...string) {
	t.Helper()
	api := s.Client(t).CoreV1().Pods("default")
	for _, name := range names {
		if err := api.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		delete(s.placed, name)
	}
	for _, name := range names {
		bed.Await(t, "pod "+name+" to go", func() error {
			_, err := api.Get(t.Context(), name, metav1.GetOptions{})
			return bed.Gone(err)
		})
	}
}

func (s *numaSession) endAll(t *testing.T) {
	t.Helper()
	s.end(t, slices.Collect(maps.Keys(s.placed))...)
}

// awaitDevices waits until claims can have that many CPUs of the NUMA nodes together, by the node's ResourceSlice.
func (s *numaSession) awaitDevices(t *testing.T, want map[int]int64) {
	t.Helper()
	began := time.Now()
	bed.Await(t, fmt.Sprintf("a ResourceSlice with %v CPUs", want), func() error {
		slice, err := s.Client(t).ResourceV1().ResourceSlices().Get(t.Context(), nodeName+"-cpus.sluice.dev", metav1.GetOptions{})
		if err != nil {
			return err
		}
		has := map[int]int64{}
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			amount := d.Capacity["cpus"].Value
			has[numaNodeOf(d)] = amount.Value()
		}
		if !maps.Equal(has, want) {
			return fmt.Errorf("it has %v", has)
		}
		return nil
	})
	t.Logf("the slice has %v after %s", want, time.Since(began).Round(100*time.Millisecond))
}

func numaNodeOf(d *resourceapi.Device) int {
	if number := d.Attributes["resource.kubernetes.io/numaNode"].IntValue; number != nil {
		return int(*number)
	}
	return -1
}
