package firstday

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// operator has the rights that docs/kubectl.md names, and no other.
const operator = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules: [{apiGroups: [""], resources: [nodes], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
subjects: [{kind: User, name: operator, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: operator, namespace: sluice}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [""], resources: [pods/exec], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: sluice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: User, name: operator, apiGroup: rbac.authorization.k8s.io}]
`

// asOperator asks the nodes with the least rights, and then with one right less.
func (d *day) asOperator() {
	d.Helper()
	d.cluster.Apply(d, operator)
	kubeconfig := d.cluster.Kubeconfig(d, "least", d.cluster.User(d, "operator"))
	top := func() (string, error) {
		cmd := exec.CommandContext(d.Context(), filepath.Join(root, "bin", "kubectl-sluice"), "top", "-o", "json", "--kubeconfig", kubeconfig)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	bed.Await(d, "the operator's rights to count", func() error { _, err := top(); return err })
	d.cluster.Apply(d, strings.Replace(operator, "verbs: [create]", "verbs: [delete]", 1))
	bed.Await(d, "the operator's right to be gone", func() error {
		if out, err := top(); err == nil || !strings.Contains(out, "ask for the right to create pods/exec in namespace sluice") {
			return fmt.Errorf("the command says %s", out)
		}
		return nil
	})
}
