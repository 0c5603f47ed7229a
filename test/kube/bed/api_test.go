package bed_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

func TestAPI(t *testing.T) {
	began := time.Now()
	c := bed.API(t)
	t.Logf("the API server was ready after %s", time.Since(began).Round(time.Millisecond))
	client := c.Client(t)
	version, err := client.Discovery().ServerVersion()
	if err != nil || !strings.HasPrefix(version.GitVersion, "v"+bed.Version()+".") {
		t.Errorf("the version is %v (%v), want one of %s", version, err, bed.Version())
	}

	t.Run("a user has no rights but those that RBAC grants", func(t *testing.T) {
		stranger, err := kubernetes.NewForConfig(c.User(t, "stranger", "tenants"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stranger.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a stranger lists pods: %v, want forbidden", err)
		}
		review, err := stranger.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil || review.Status.UserInfo.Username != "stranger" || !slices.Contains(review.Status.UserInfo.Groups, "tenants") {
			t.Errorf("the stranger is %+v (%v)", review, err)
		}
	})

	t.Run("a pod's token names its node", func(t *testing.T) {
		c.Namespace(t, "agents", map[string]string{"team": "nodes"})
		c.Apply(t, `
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: agents}
spec:
  nodeName: n1
  containers: [{name: main, image: none}]
`)
		pod, err := client.CoreV1().Pods("agents").Get(t.Context(), "agent", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		agent, err := kubernetes.NewForConfig(c.PodToken(t, pod))
		if err != nil {
			t.Fatal(err)
		}
		review, err := agent.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := review.Status.UserInfo
		if got.Username != "system:serviceaccount:agents:default" || !slices.Equal(got.Extra["authentication.kubernetes.io/node-name"], []string{"n1"}) {
			t.Errorf("the token's user is %+v", got)
		}
	})

	t.Run("the API server goes away and comes back", func(t *testing.T) {
		c.APIServer.Kill(t)
		if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Error("a killed API server answers")
		}
		c.APIServer.Start(t)
		if _, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// The controllers make the pod of a Deployment, and the scheduler binds it to the only node.
func TestControllers(t *testing.T) {
	c := bed.API(t)
	c.StartControllers(t)
	c.Apply(t, `
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: none}]
`)
	status := `{"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}}`
	if _, err := c.Client(t).CoreV1().Nodes().Patch(t.Context(), "n1", "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	bed.Await(t, "the Deployment's pod to be bound", func() error {
		pods, err := c.Client(t).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == "n1" }) {
			err = bed.ErrNotYet
		}
		return err
	})
}
