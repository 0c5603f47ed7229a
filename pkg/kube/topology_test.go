package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/cluster/zones"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// numaNodes returns a machine with so many NUMA nodes of four CPUs, each of which gives new pins three.
func numaNodes(count int) status.Machine {
	var m status.Machine
	for i := range count {
		n := status.NUMANode{ID: i, CPUs: cpuset.Range(4*i, 4*i+3), PinnableCPUs: 3}
		for j := range count {
			n.Distances = append(n.Distances, 10+10*min(1, max(i-j, j-i)))
		}
		m.NUMANodes = append(m.NUMANodes, n)
	}
	return m
}

func topologyNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid", ResourceVersion: "5"},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			"cpu": resource.MustParse("7500m"), "memory": resource.MustParse("30Gi"), "hugepages-1Gi": resource.MustParse("2Gi"),
			"kubernetes.io/batch-cpu": resource.MustParse("4k"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("9Gi"),
			"batch.sluice.dev/cpu": resource.MustParse("4k"), "nvidia.com/gpu": resource.MustParse("1"),
		}},
	}
}

// What is published of one, two and four NUMA nodes.
func TestTopologyObject(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]string{
		1: `[{"name":"node-0","type":"Node","costs":[{"name":"node-0","value":10}],"resources":[` + pinnable(3) + natives + `]}]`,
		2: `[{"name":"node-0","type":"Node","costs":[{"name":"node-0","value":10},{"name":"node-1","value":20}],"resources":[` + pinnable(3) + natives + `]},` +
			`{"name":"node-1","type":"Node","costs":[{"name":"node-0","value":20},{"name":"node-1","value":10}],"resources":[` + pinnable(3) + natives + `]}]`,
	} {
		m := numaNodes(count)
		node := topologyNode()
		got := topologyOf(node, zones.Of(&m, 0, whole(node.Status.Allocatable)))
		text, err := json.Marshal(got.Zones)
		if err != nil || string(text) != want {
			t.Errorf("of %d NUMA nodes (%v) the zones are\n%s, want\n%s", count, err, text, want)
		}
		if got.Metadata.Name != "n1" || len(got.Metadata.Owners) != 1 || got.Metadata.Owners[0].UID != "node-uid" || len(got.Attributes) != 2 {
			t.Errorf("the object is %+v", got)
		}
	}
	for count, attributes := range map[int]int{4: 2, 8: 2, 9: 3} {
		m := numaNodes(count)
		got := topologyOf(topologyNode(), zones.Of(&m, 0, nil))
		if len(got.Zones) != count || got.Zones[count-1].Name != "node-"+string(rune('0'+count-1)) || len(got.Attributes) != attributes {
			t.Errorf("of %d NUMA nodes the object is %+v", count, got)
		}
	}
}

const natives = `,{"name":"cpu","capacity":"7500m","allocatable":"7500m","available":"7500m"}` +
	`,{"name":"ephemeral-storage","capacity":"9Gi","allocatable":"9Gi","available":"9Gi"}` +
	`,{"name":"hugepages-1Gi","capacity":"2Gi","allocatable":"2Gi","available":"2Gi"}` +
	`,{"name":"kubernetes.io/batch-cpu","capacity":"4k","allocatable":"4k","available":"4k"}` +
	`,{"name":"memory","capacity":"30Gi","allocatable":"30Gi","available":"30Gi"}`

func pinnable(free int) string {
	digit := string(rune('0' + free))
	return `{"name":"sluice.dev/pinnable-cpu","capacity":"4","allocatable":"` + digit + `","available":"` + digit + `"}`
}

// topologyServer has at most one object, and answers with an error if status is set.
type topologyServer struct {
	mu     sync.Mutex
	status int
	object *metav1.PartialObjectMetadata
	body   string
	asked  []string
}

func (s *topologyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	s.asked = append(s.asked, r.Method)
	w.Header().Set("Content-Type", "application/json")
	fail := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(&metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: "no " + string(reason)})
	}
	switch {
	case r.URL.Path != "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/n1":
		fail(http.StatusNotFound, metav1.StatusReasonNotFound)
	case s.status == http.StatusConflict:
		fail(s.status, metav1.StatusReasonConflict)
	case s.status == http.StatusForbidden:
		fail(s.status, metav1.StatusReasonForbidden)
	case s.status == http.StatusNotFound, r.Method != http.MethodPatch && s.object == nil:
		fail(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodDelete:
		var options metav1.DeleteOptions
		if json.Unmarshal(body, &options) != nil || options.Preconditions == nil || *options.Preconditions.ResourceVersion != s.object.ResourceVersion {
			fail(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		s.object = nil
		json.NewEncoder(w).Encode(&metav1.Status{Status: metav1.StatusSuccess})
	case r.Method == http.MethodPatch:
		s.body = string(body)
		s.object = &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{managed(r.URL.Query().Get("fieldManager"), `{"f:zones":{}}`)}}}
		io.WriteString(w, "{}")
	default:
		json.NewEncoder(w).Encode(s.object)
	}
}

func newTopology(t *testing.T) (*Topology, *topologyServer) {
	t.Helper()
	api := &topologyServer{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	log := logrus.New()
	log.SetOutput(io.Discard)
	names := selling.Sluice.Names()
	names[selling.Pins] = selling.PinnableCPU
	client := &Client{config: &rest.Config{Host: server.URL}, node: "n1"}
	publisher := &Publisher{client: client, log: log, node: &node{names: names, changed: func() {}}}
	publisher.pods = &Pods{names: names, known: -1, store: cache.NewStore(cache.MetaNamespaceKeyFunc), controller: followed{synced: true}}
	publisher.node.saw(publisher.node.trim(topologyNode()))
	topology, err := publisher.Topology()
	if err != nil {
		t.Fatal(err)
	}
	return topology, api
}

// A pod that was bound to the node and has no pin yet is missing in every zone, and not any more once it has one.
func TestPromisedPins(t *testing.T) {
	t.Parallel()
	topology, api := newTopology(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "pod-uid"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{selling.PinnableCPU: resource.MustParse("2")}}},
	}}}
	if err := topology.publisher.pods.store.Add(topology.publisher.pods.trim(pod)); err != nil {
		t.Fatal(err)
	}
	s := &status.Status{Machine: numaNodes(2), Runtime: status.Runtime{Connected: true}}
	check := func(when string, free ...int) {
		t.Helper()
		if err := topology.Heard(s); err != nil {
			t.Fatal(err)
		}
		want, due := topology.object.next(time.Now())
		if !due || len(want) != 2 || want[0].Free != free[0] || want[1].Free != free[1] {
			t.Errorf("%s: %+v, due: %v", when, want, due)
		}
		if err := topology.put(t.Context(), want); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("bound", 1, 1)
	s.Machine.NUMANodes[0].PinnableCPUs, s.Machine.Pinned = 1, cpuset.Range(0, 1)
	s.Containers = []status.Container{{PodUID: "pod-uid", CPUs: cpuset.Range(0, 1)}}
	check("running", 1, 3)
	if !strings.Contains(api.body, `{"name":"sluice.dev/pinnable-cpu","capacity":"4","allocatable":"3","available":"1"}`) || !strings.Contains(api.body, `"topologyManagerPolicy","value":"single-numa-node"`) {
		t.Errorf("the object is %s", api.body)
	}
}

// Where only an operator can help, the error says how, and the next attempt comes minutes later.
func TestTopologyFails(t *testing.T) {
	t.Parallel()
	topology, api := newTopology(t)
	m := numaNodes(1)
	want := zones.Of(&m, 0, nil)
	for code, text := range map[int]string{
		http.StatusNotFound: "no custom resource definition of noderesourcetopologies.topology.node.k8s.io/v1alpha2: install it",
		http.StatusConflict: "another program publishes it", http.StatusForbidden: "kube.topology",
	} {
		api.status = code
		err := topology.put(t.Context(), want)
		if err == nil || !strings.Contains(err.Error(), text) || topologyWait(err) != operatorPause {
			t.Errorf("%d: %v, the next attempt after %s", code, err, topologyWait(err))
		}
	}
	api.status = 0
	if err := topology.put(t.Context(), want); err != nil {
		t.Error(err)
	}
}

// sluice-kube deletes the object when the plugin stays away, and when Sluice is removed from the node, unless
// another program owns the object by then.
func TestTopologyIsWithdrawn(t *testing.T) {
	t.Parallel()
	topology, api := newTopology(t)
	client := topology.publisher.client
	m := numaNodes(1)
	for name, withdraw := range map[string]func() error{
		"plugin": func() error { return topology.put(t.Context(), nil) },
		"node":   func() error { return client.WithdrawTopology(t.Context(), "n1") },
	} {
		if err := topology.put(t.Context(), zones.Of(&m, 0, nil)); err != nil {
			t.Fatal(err)
		}
		api.object.ManagedFields = append(api.object.ManagedFields[:0:0], managed("nfd-master", `{"f:zones":{}}`), managed(Manager, `{"f:metadata":{}}`))
		if err := withdraw(); err != nil || api.object == nil {
			t.Errorf("%s: the object of another publisher is deleted, %v", name, err)
		}
		api.object.ManagedFields = append(api.object.ManagedFields, managed(Manager, `{"f:zones":{}}`))
		if err := withdraw(); err != nil || api.object != nil {
			t.Errorf("%s: %v, left is %+v", name, err, api.object)
		}
		if err := withdraw(); err != nil {
			t.Errorf("%s: an object that is gone: %v", name, err)
		}
	}
	api.status = http.StatusForbidden
	if err := client.WithdrawTopology(t.Context(), "n1"); err != nil {
		t.Errorf("an account without the right fails: %v", err)
	}
}

// A plugin that is away, or knows no NUMA nodes yet, changes nothing until it has stayed away.
func TestTopologyWithoutPlugin(t *testing.T) {
	t.Parallel()
	topology, _ := newTopology(t)
	for _, s := range []*status.Status{{Machine: numaNodes(2)}, {Runtime: status.Runtime{Connected: true}}} {
		if err := topology.Heard(s); err != nil {
			t.Fatal(err)
		}
		if want, due := topology.object.next(time.Now()); due {
			t.Errorf("%+v is due", want)
		}
	}
	if want, due := topology.object.next(time.Now().Add(time.Minute)); !due || len(want) != 0 {
		t.Errorf("after a minute %+v is wanted, due: %v", want, due)
	}
}
