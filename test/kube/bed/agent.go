package bed

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Everything are the rules of a role that refuses nothing, so that admission policies alone bound its account.
const Everything = `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`

// AgentRules are the rules that the chart grants sluice-kube without evictions.
const AgentRules = `
- {apiGroups: [""], resources: [nodes], verbs: [list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
- {apiGroups: [""], resources: [events], verbs: [create]}
`

// AgentAccount makes the account sluice-kube in the namespace "sluice", with these RBAC rules for the whole cluster, and
// the policies that bound it to its node.
func (c *Cluster) AgentAccount(t testing.TB, rules string) {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	policies, err := os.ReadFile(filepath.Join(root, "configs/kubernetes/policies/own-node.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: sluice}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: sluice-kube, namespace: sluice}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sluice-kube}
rules: %s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: sluice-kube, namespace: sluice}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sluice-kube, namespace: sluice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sluice-kube}
subjects: [{kind: ServiceAccount, name: sluice-kube, namespace: sluice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sluice-kube}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluice-kube}
subjects: [{kind: ServiceAccount, name: sluice-kube, namespace: sluice}]
---
%s`, rules, policies))
}

// Agent makes that account, the node's object, and a pod of the account on the node. It returns the configuration of a
// client with the pod's token.
func (c *Cluster) Agent(t testing.TB, node, rules string) *rest.Config {
	t.Helper()
	c.AgentAccount(t, rules)
	c.Apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: %s}
---
apiVersion: v1
kind: Pod
metadata: {name: sluice-kube, namespace: sluice}
spec:
  serviceAccountName: sluice-kube
  nodeName: %[1]s
  containers: [{name: main, image: none}]
`, node))
	pod, err := c.Client(t).CoreV1().Pods("sluice").Get(t.Context(), "sluice-kube", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c.PodToken(t, pod)
}
