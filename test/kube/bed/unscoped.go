package bed

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Unscoped lists the roles, bindings, admission policies and priority classes, which are in no namespace, whose names
// begin with the prefix.
func (c *Cluster) Unscoped(t testing.TB, prefix string) []string {
	t.Helper()
	var names []string
	note := func(list runtime.Object, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			a, err := meta.Accessor(o)
			if err == nil && strings.HasPrefix(a.GetName(), prefix) {
				names = append(names, fmt.Sprintf("%T %s", o, a.GetName()))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	client, ctx, all := c.Client(t), t.Context(), metav1.ListOptions{}
	roles, err := client.RbacV1().ClusterRoles().List(ctx, all)
	note(roles, err)
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, all)
	note(bindings, err)
	policies, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, all)
	note(policies, err)
	bound, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, all)
	note(bound, err)
	classes, err := client.SchedulingV1().PriorityClasses().List(ctx, all)
	note(classes, err)
	if Version() != "1.34" { // where the API is beta
		mutating, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, all)
		note(mutating, err)
	}
	return names
}
