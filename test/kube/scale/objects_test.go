package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// agent is the namespace and, with a suffix, the name of the pods of sluice-kube.
const (
	agent = "sluice"
	batch = "batch"
)

// place is a node object with the pods on it, and the token of its sluice-kube.
type place struct {
	name, token string
	bound       amounts
}

// makePlaces makes the objects of that many nodes.
func makePlaces(t testing.TB, c *bed.Cluster, nodes int) []place {
	t.Helper()
	c.AgentAccount(t, bed.AgentRules)
	c.Namespace(t, batch, nil)
	client := c.Client(t)
	places := make([]place, nodes)
	var making errgroup.Group
	making.SetLimit(16)
	for i := range places {
		making.Go(func() (err error) {
			places[i], err = makePlace(t.Context(), client, fmt.Sprintf("node-%04d", i))
			return err
		})
	}
	if err := making.Wait(); err != nil {
		t.Fatal(err)
	}
	return places
}

func makePlace(ctx context.Context, client kubernetes.Interface, name string) (place, error) {
	milli := 500 + rand.Int64N(3500)
	p := place{name: name, bound: amounts{milli, milli << 20}}
	if _, err := client.CoreV1().Nodes().Create(ctx, nodeObject(name), metav1.CreateOptions{FieldManager: "kubelet"}); err != nil {
		return p, err
	}
	requests := corev1.ResourceList{cpu: *resource.NewQuantity(p.bound.cpu, resource.DecimalSI), memory: *resource.NewQuantity(p.bound.memory, resource.DecimalSI)}
	if _, err := runPod(ctx, client, batch, name, corev1.ResourceRequirements{Requests: requests, Limits: requests}); err != nil {
		return p, err
	}
	own, err := runPod(ctx, client, agent, name, corev1.ResourceRequirements{})
	if err != nil {
		return p, err
	}
	issued, err := client.CoreV1().ServiceAccounts(agent).CreateToken(ctx, "sluice-kube", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: own.Name, UID: own.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		return p, err
	}
	p.token = issued.Status.Token
	return p, nil
}

// runPod makes a pod that runs on the node of its name.
func runPod(ctx context.Context, client kubernetes.Interface, namespace, node string, resources corev1.ResourceRequirements) (*corev1.Pod, error) {
	account := "default"
	if namespace == agent {
		account = "sluice-kube"
	}
	pod, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "main", Image: "none", Resources: resources}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: "198.51.100.1"}
	return client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{FieldManager: "kubelet"})
}

// nodeObject is a Node object as large as those of kubelets: most of one is the list of its images.
func nodeObject(name string) *corev1.Node {
	const images = 50
	amounts := corev1.ResourceList{"pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("500Gi"), "hugepages-1Gi": resource.MustParse("0")}
	amounts[corev1.ResourceCPU], amounts[corev1.ResourceMemory] = *resource.NewQuantity(nodeCPUs, resource.DecimalSI), *resource.NewQuantity(nodeMemory, resource.BinarySI)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": "region-1-a", "node.kubernetes.io/instance-type": "64-cpus",
		}},
		Spec: corev1.NodeSpec{ProviderID: "provider://region-1/" + name},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts.DeepCopy(),
			NodeInfo: corev1.NodeSystemInfo{
				KernelVersion: "6.18.0", OSImage: "Debian GNU/Linux 13 (trixie)", OperatingSystem: "linux", Architecture: "amd64",
				ContainerRuntimeVersion: "containerd://2.4.2", KubeletVersion: "v" + bed.Version() + ".0",
			},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "198.51.100.1"}},
		},
	}
	now := metav1.Now()
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "KubeletReports" + string(kind), Message: "the kubelet reports " + string(kind), LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	for i := range images {
		repository := fmt.Sprintf("registry.example.com/team-%d/service-%d", i%7, i)
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("%s@sha256:%064x", repository, i), repository + ":v1.2.3"}, SizeBytes: 100 << 20,
		})
	}
	return node
}

// config is that of a client with the place's token. Clients of one process share connections where their authorities are
// the same text, so a line that is no part of a certificate gives each its own.
func (p *place) config(admin *rest.Config) *rest.Config {
	return &rest.Config{Host: admin.Host, BearerToken: p.token, TLSClientConfig: rest.TLSClientConfig{CAData: append(append([]byte{}, admin.CAData...), "\n"+p.name+"\n"...)}}
}
