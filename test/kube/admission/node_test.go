package admission

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// agent starts an API server with the nodes a and b, and returns it with the token of the agent on node a. RBAC allows
// the agent everything, so that what is refused is refused by the policies.
func agent(t *testing.T) (*bed.Cluster, *rest.Config) {
	t.Helper()
	cluster := start(t)
	client := cluster.Client(t)
	for _, name := range []string{"a", "b"} {
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "1"}, Annotations: map[string]string{"example.com/owner": "x"}}
		node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: meta}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		amounts := limits("cpu", "8", "memory", "16Gi", "pods", "110", "batch.sluice.dev/cpu", "100").Limits
		node.Status = corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "SluiceReady", Status: corev1.ConditionFalse}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		}
		if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	token := cluster.Agent(t, "a", bed.Everything)
	bed.Await(t, "the policy of the own node acts", func() error {
		if err := change(t, token, "b", "merge", "status", func(n *corev1.Node) { n.Status.Capacity["batch.sluice.dev/cpu"] = one() }); err == nil {
			return bed.ErrNotYet
		}
		return nil
	})
	return cluster, token
}

func one() resource.Quantity { return resource.MustParse("1") }

// methods are the ways to change an object.
func methods() []string { return []string{"update", "merge", "strategic", "json", "apply"} }

// change changes a node in a dry run.
func change(t *testing.T, config *rest.Config, name, method, subresource string, edit func(*corev1.Node)) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	old, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	edited := old.DeepCopy()
	edit(edited)
	request := client.CoreV1().RESTClient().Verb("PATCH")
	if method == "update" {
		request = client.CoreV1().RESTClient().Put().Body(edited)
	} else {
		kind, body := patch(t, method, old, edited)
		if body == nil {
			t.Skip("server-side apply removes nothing that others have applied")
		}
		request = request.Body(body).SetHeader("Content-Type", string(kind))
		if method == "apply" {
			request = request.Param("fieldManager", "test").Param("force", "true")
		}
	}
	return request.Resource("nodes").Name(name).SubResource(subresource).Param("dryRun", "All").Do(t.Context()).Error()
}

func marshal(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// patch returns the patch from old to edited; nil if the method has none.
func patch(t *testing.T, method string, old, edited *corev1.Node) (kind types.PatchType, body []byte) {
	t.Helper()
	var err error
	switch method {
	case "strategic":
		kind = types.StrategicMergePatchType
		body, err = strategicpatch.CreateTwoWayMergePatch(marshal(t, old), marshal(t, edited), corev1.Node{})
	case "json":
		kind = types.JSONPatchType
		body = marshal(t, []map[string]any{
			{"op": "replace", "path": "/metadata", "value": edited.ObjectMeta},
			{"op": "replace", "path": "/spec", "value": edited.Spec},
			{"op": "replace", "path": "/status", "value": edited.Status},
		})
	default:
		kind = types.MergePatchType
		body, err = jsonpatch.CreateMergePatch(marshal(t, old), marshal(t, edited))
	}
	if err != nil {
		t.Fatal(err)
	}
	if method != "apply" {
		return kind, body
	}
	if strings.Contains(string(body), "null") {
		return kind, nil
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatal(err)
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"] = edited.Name
	object["metadata"], object["apiVersion"], object["kind"] = metadata, "v1", "Node"
	return types.ApplyYAMLPatchType, marshal(t, object)
}

// set makes a change that gives both lists of resources an amount.
func set(name, amount string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Capacity[corev1.ResourceName(name)] = resource.MustParse(amount)
		n.Status.Allocatable[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
}

func condition(name corev1.NodeConditionType, status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			if n.Status.Conditions[i].Type == name {
				n.Status.Conditions[i].Status = status
				return
			}
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: name, Status: status})
	}
}

func annotation(name, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[name] = value }
}

// allowed are the changes of its own node's status that the agent may make.
func allowed() map[string]func(*corev1.Node) {
	return map[string]func(*corev1.Node){
		"batch amounts":       set("batch.sluice.dev/cpu", "4000"),
		"mid amounts":         set("mid.sluice.dev/memory", "1Gi"),
		"Koordinator's names": set("kubernetes.io/batch-cpu", "4000"),
		"Katalyst's names":    set("resource.katalyst.kubewharf.io/reclaimed_millicpu", "4000"),
		"no batch amounts": func(n *corev1.Node) {
			delete(n.Status.Capacity, "batch.sluice.dev/cpu")
			delete(n.Status.Allocatable, "batch.sluice.dev/cpu")
		},
		"its condition":   condition("SluiceReady", corev1.ConditionTrue),
		"a new condition": condition("SluiceBatchOpen", corev1.ConditionTrue),
		"its report":      annotation(nodereport.Annotation, "x"),
		"a long report":   annotation(nodereport.Annotation, strings.Repeat("x", nodereport.MaxBytes)),
	}
}

// refused are the changes of a node's status that it may not make.
func refused() map[string]func(*corev1.Node) {
	return map[string]func(*corev1.Node){
		"cpu":                     set("cpu", "64"),
		"memory":                  set("memory", "1Ti"),
		"pods":                    set("pods", "1000"),
		"another resource":        set("nvidia.com/gpu", "8"),
		"a name that is alike":    set("batch.sluice.dev/gpu", "8"),
		"capacity alone":          func(n *corev1.Node) { n.Status.Capacity["cpu"] = one() },
		"no cpu":                  func(n *corev1.Node) { delete(n.Status.Allocatable, "cpu") },
		"condition Ready":         condition(corev1.NodeReady, corev1.ConditionFalse),
		"another condition":       condition("DiskPressure", corev1.ConditionTrue),
		"no condition Ready":      func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[1:] },
		"label":                   func(n *corev1.Node) { n.Labels["zone"] = "2" },
		"new label":               func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" },
		"our label":               func(n *corev1.Node) { n.Labels["class.sluice.dev"] = "x" },
		"annotation":              annotation("volumes.kubernetes.io/controller-managed-attach-detach", "x"),
		"our annotation":          annotation("class.sluice.dev", "x"),
		"annotation alike":        annotation("sluice.dev/node-reports", "x"),
		"annotation's name":       annotation("example.com/sluice.dev", "x"),
		"too long a report":       annotation(nodereport.Annotation, strings.Repeat("x", nodereport.MaxBytes+1)),
		"no annotation of others": func(n *corev1.Node) { n.Annotations = nil },
		"finalizer":               func(n *corev1.Node) { n.Finalizers = []string{"example.com/stay"} },
		"owner": func(n *corev1.Node) {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "agent", UID: "1"}}
		},
		"address":         func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.2" },
		"phase":           func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning },
		"kubelet's port":  func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 1 },
		"node info":       func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "7" },
		"images":          func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}} },
		"volumes":         func(n *corev1.Node) { n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"} },
		"attached":        func(n *corev1.Node) { n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "v"}} },
		"runtime handler": func(n *corev1.Node) { n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: "r"}} },
		"features": func(n *corev1.Node) {
			on := true
			n.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &on}
		},
	}
}

// TestTokenOfANode tries every change by every method. RBAC allows all of them.
func TestTokenOfANode(t *testing.T) {
	cluster, token := agent(t)
	check := func(name, node, subresource, want string, edit func(*corev1.Node)) {
		for _, method := range methods() {
			t.Run(strings.Join([]string{node, subresource, name, method}, "/"), func(t *testing.T) {
				err := change(t, token, node, method, subresource, edit)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			})
		}
	}
	for name, edit := range allowed() {
		check(name, "a", "status", "", edit)
		check(name, "b", "status", "the agent of node a may not change node b", edit)
	}
	for name, edit := range refused() {
		check(name, "a", "status", "sluice-own-node", edit)
		check(name, "b", "status", "sluice-own-node", edit)
	}
	for name, edit := range map[string]func(*corev1.Node){
		"label":         func(n *corev1.Node) { n.Labels["zone"] = "2" },
		"annotation":    annotation(nodereport.Annotation, "x"),
		"unschedulable": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"taint":         func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: "NoExecute"}} },
	} {
		check(name, "a", "", "the agent may only update the status of its node: not UPDATE of nodes", edit)
		check(name, "b", "", "sluice-own-node", edit)
	}
	nodes := clientOf(t, token).CoreV1().Nodes()
	dry := []string{metav1.DryRunAll}
	if err := nodes.Delete(t.Context(), "a", metav1.DeleteOptions{DryRun: dry}); err == nil || !strings.Contains(err.Error(), "not DELETE of nodes") {
		t.Errorf("the node is deleted: %v", err)
	}
	if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{DryRun: dry}); err == nil || !strings.Contains(err.Error(), "sluice-own-node") {
		t.Errorf("a node is created: %v", err)
	}
	// Others are not concerned.
	if err := change(t, cluster.Admin(), "b", "merge", "status", set("cpu", "64")); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	if err := change(t, unbound(t, cluster), "a", "merge", "status", set("batch.sluice.dev/cpu", "1")); err == nil || !strings.Contains(err.Error(), "this token names no node") {
		t.Errorf("a token of no pod: %v", err)
	}
}

// unbound is the configuration with a token of the agent's account that belongs to no pod.
func unbound(t *testing.T, cluster *bed.Cluster) *rest.Config {
	t.Helper()
	issued, err := cluster.Client(t).CoreV1().ServiceAccounts("sluice").CreateToken(t.Context(), "sluice-kube", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	admin := cluster.Admin()
	return &rest.Config{Host: admin.Host, BearerToken: issued.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: admin.CAData}}
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestPolicyNamesEveryField: a field of a node's status that Kubernetes adds must be added to the policy.
func TestPolicyNamesEveryField(t *testing.T) {
	text := policy(t, "own-node.yaml")
	for field := range reflect.TypeFor[corev1.NodeStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !strings.Contains(text, "object.status.?"+name) {
			t.Errorf("own-node.yaml doesn't say whether the agent may change status.%s", name)
		}
	}
}
