package sell_test

import (
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Without the right to read pods, a predecessor's offer must not stay.
func TestPodsForbidden(t *testing.T) {
	s := newStand(t)
	s.start()
	s.await(4000, selling)
	s.program.Kill()
	roles := s.client.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "sluice-kube", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "pods") })
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Logf("without the right to read pods the resources were gone after %v", s.await(-1, "False NotReady").Round(time.Second))
	if got := reason(s.node(), "SluiceReady"); got != "False PodsUnknown" {
		t.Errorf("SluiceReady is %s", got)
	}
}
