package sell_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/kube/bed"
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
	s.plugin.offer(milli)
	change := s.plugin.change
	s.plugin.set(func(st *status.Status) {
		change(st)
		st.Mode = status.ModePreview
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
	if got := reason(s.node(), "SluiceReady"); got != "False Preview" {
		t.Errorf("SluiceReady is %s", got)
	}

	s.patchStatus("nodes", nodeName, types.MergePatchType, "somebody", fmt.Sprintf(`{"metadata": {"annotations": {%q: "garbage"}}}`, nodereport.Annotation))
	before := s.program.publications(t)
	s.plugin.set(func(st *status.Status) {
		st.Loop.Offer = control.Offer{Known: true, ShortTerm: control.Amount{CPU: 3000, MemoryBytes: 3000 << 20}}
		st.Loop.Evictions.CoolDownEndsAt, st.Loop.Evictions.CoolDownWhy = time.Now().Add(time.Hour), "a test"
	})
	s.await(0, "False CoolDown")
	s.report("a report instead of garbage", func(*nodereport.Report) bool { return true })
	if n := s.program.publications(t) - before; n != 1 {
		t.Errorf("it took %d publications, want 1", n)
	}

	s.program.stop(t)
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
