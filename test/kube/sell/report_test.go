package sell_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
)

// report waits until the node has a report that fits.
func (s *stand) report(what string, fits func(*nodereport.Report) bool) *nodereport.Report {
	s.Helper()
	var r *nodereport.Report
	bed.Await(s, what, func() error {
		text := s.node().Annotations[nodereport.Annotation]
		var err error
		if r, err = nodereport.Parse(text); err == nil && !fits(r) {
			err = fmt.Errorf("the node says %s", text)
		}
		return err
	})
	return r
}

// preview lets the plugin be in preview, and offer this much.
func (s *stand) preview(milli int64) {
	s.plugin.Set(func(st *status.Status) {
		standin.Offers(st, milli)
		st.Mode = status.ModePreview
		st.Scheduling = status.Scheduling{Allocatable: 31000, OvercommitRatio: 1.25, Room: new(workload.MilliCPU(2500))}
	})
}

// A node in preview sells nothing, and says what it could sell. Whatever somebody else writes in its
// place, the amounts are published all the same.
func TestNodeReport(t *testing.T) {
	s := newStand(t)
	s.preview(4000)
	s.pod("service", "cpu", "500m", true)
	s.start()
	s.await(0, "False NotReady")
	r := s.report("the offer", func(r *nodereport.Report) bool { return r.Sellable != nil && r.Requested.MilliCPU == 500 })
	if r.Sellable.ShortTerm != (nodereport.Amount{MilliCPU: 4000, MemoryBytes: 4000 << 20}) || r.Used == nil || time.Since(r.MeasuredAt) > time.Minute {
		t.Errorf("the node says %+v", r)
	}
	if is := r.Scheduling; is == nil || is.AllocatableMilliCPU != 31000 || is.OvercommitRatio != 1.25 || is.RoomMilliCPU == nil || *is.RoomMilliCPU != 2500 {
		t.Errorf("for schedulers the node says %+v", is)
	}
	if got := reason(s.node(), "SluiceReady"); got != "False Preview" {
		t.Errorf("SluiceReady is %s", got)
	}

	s.patchStatus("nodes", nodeName, types.MergePatchType, "somebody", fmt.Sprintf(`{"metadata": {"annotations": {%q: "garbage"}}}`, nodereport.Annotation))
	before := s.program.Publications(t)
	s.plugin.Set(func(st *status.Status) {
		st.Loop.Offer = control.Offer{Known: true, ShortTerm: control.Amount{CPU: 3000, MemoryBytes: 3000 << 20}}
		st.Loop.Evictions.CoolDownEndsAt, st.Loop.Evictions.CoolDownWhy = time.Now().Add(time.Hour), "a test"
	})
	s.await(0, "False CoolDown")
	s.report("a report instead of garbage", func(*nodereport.Report) bool { return true })
	if n := s.program.Publications(t) - before; n != 1 {
		t.Errorf("it took %d publications, want 1", n)
	}

	s.program.Stop(t)
	if got := s.node().Annotations[nodereport.Annotation]; got == "" {
		t.Error("the report is gone when sluice-kube stops")
	}
	if out, err := exec.CommandContext(t.Context(), "../../../bin/sluice-kube", "uninstall", "--node-name", nodeName, "--kubeconfig", s.kubeconfig).CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	if node := s.node(); node.Annotations[nodereport.Annotation] != "" || len(node.Status.Capacity) > 0 {
		t.Errorf("after uninstall the node has %v and %v", node.Annotations, node.Status.Capacity)
	}
}

// operator may list nodes and pods, and do nothing else. The pod is that of the chart's group "web".
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
metadata: {name: operator, namespace: default}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: operator, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: operator}
subjects: [{kind: User, name: operator, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: Pod
metadata: {name: sluice-kube-web, namespace: default, labels: {app.kubernetes.io/name: sluice, app.kubernetes.io/component: kube-web}}
spec:
  nodeName: n1
  containers: [{name: main, image: none}]
---
apiVersion: v1
kind: Node
metadata: {name: n2}
`

// summary is what kubectl sluice report says to the operator.
func (s *stand) summary(kubeconfig string) *fleet.Summary {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), "../../../bin/kubectl-sluice", "report", "-o", "json", "--namespace", "default", "--kubeconfig", kubeconfig).CombinedOutput()
	if err != nil {
		s.Fatalf("report: %v\n%s", err, out)
	}
	var all fleet.Summary
	if err := json.Unmarshal(out, &all); err != nil {
		s.Fatal(err)
	}
	return &all
}

// An operator who may list nodes, and the pods of one namespace, sees what the cluster could sell, and which nodes say
// nothing, whatever somebody writes into a node's annotation.
func TestReportCommand(t *testing.T) {
	s := newStand(t)
	s.preview(4000)
	s.cluster.Apply(t, operator)
	s.patchStatus("pods", "sluice-kube-web", types.MergePatchType, "kubelet", `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`)
	kubeconfig := s.cluster.Kubeconfig(t, "operator", s.cluster.User(t, "operator"))
	if all := s.summary(kubeconfig); all.Total.Reporting != 0 || all.Nodes[0].State != fleet.NothingReported || all.Nodes[1].State != fleet.NotInstalled {
		t.Errorf("before sluice-kube the nodes are %+v", all.Nodes)
	}
	s.start()
	s.report("the offer", func(r *nodereport.Report) bool { return r.Sellable != nil })
	all := s.summary(kubeconfig)
	if all.Total.Nodes != 2 || all.Total.Reporting != 1 || all.Total.Sellable.ShortTerm.MilliCPU != 4000 || all.Nodes[0].State != "Preview" ||
		len(all.Groups) != 2 || all.Groups[0].Name != "web" || !strings.Contains(all.Next, "4 CPUs") {
		t.Errorf("the report is %+v", all)
	}
	for _, garbage := range []string{"garbage", strings.Repeat("{", 200<<10)} {
		s.patchStatus("nodes", nodeName, types.MergePatchType, "somebody", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, nodereport.Annotation, garbage))
		if all := s.summary(kubeconfig); all.Nodes[0].State != fleet.Unreadable || all.Total.Reporting != 0 || all.Total.Nodes != 2 {
			t.Errorf("with %.20s the report is %+v", garbage, all)
		}
	}
}
