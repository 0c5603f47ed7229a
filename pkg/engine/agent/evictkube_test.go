package agent

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// TestLastResort: at critical memory a pod that the API server does not evict is ended through
// the runtime.
func TestLastResort(t *testing.T) {
	for name, test := range map[string]struct {
		hangs bool
		err   error
		after time.Duration // from critical memory to the runtime's call
	}{
		"sluice-kube gives no answer":          {hangs: true, after: 10 * time.Second},
		"a disruption budget forbids it":       {err: fmt.Errorf("%w: budget web", evictorder.ErrRefused), after: 6 * time.Second},
		"sluice-kube is not connected":         {err: evictorder.ErrNobody, after: 6 * time.Second},
		"the API server refuses for good":      {err: errors.New("forbidden"), after: 10 * time.Second},
		"it is accepted and has no effect yet": {after: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var api, cri *fakeEvictor
			s := knobSetup{config: "control: {mode: on, eviction: {by: kubernetes}}\n"}
			s.options = func(_ *knobNode, o *Options) {
				api, cri = &fakeEvictor{hangs: test.hangs, err: test.err}, &fakeEvictor{}
				o.Evictor, o.LastResort = api, cri
			}
			onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
				h.run(service("web/c", 2000), batch("job/c"))
				h.hold("job/c", 3<<30)
				h.memory.Available = 3 << 30
				h.steps(5 * time.Second)
				h.memory.Available, h.memory.Free = 100<<20, 100<<20
				for waited := time.Duration(0); len(cri.asked) == 0; waited += time.Second {
					if waited > test.after {
						t.Fatalf("%v after memory is critical the runtime is not asked, the API server is %d times", waited, len(api.asked))
					}
					h.steps(time.Second)
				}
				if len(api.asked) == 0 || api.asked[0] != cri.asked[0] {
					t.Errorf("the API server was asked for %v, the runtime for %v", api.asked, cri.asked)
				}
			})
		})
	}
}

// TestStuckBatchIsEvicted: a BE pod that the node refuses for half a minute is evicted, so that
// it can start elsewhere.
func TestStuckBatchIsEvicted(t *testing.T) {
	var api *fakeEvictor
	s := knobSetup{config: "control: {mode: on, eviction: {by: kubernetes}, rules: [{name: busy, metric: node.memory, watermark: 1, action: refuse, coolDown: 1h}]}\n"}
	s.options = func(_ *knobNode, o *Options) {
		api = &fakeEvictor{}
		o.Evictor = api
		o.APIPods = func() map[string]evictorder.Pod { return map[string]evictorder.Pod{"job": {UID: "job"}} }
	}
	onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 2000))
		h.steps(3 * time.Second)
		stuck := batch("job/c")
		for i := range 8 {
			if err := h.create(stuck); err == nil {
				t.Fatal("the rule refuses nothing")
			}
			if i < 3 && len(api.asked) > 0 {
				t.Errorf("after %d s it is evicted", 10*i)
			}
			h.steps(10 * time.Second)
		}
		if len(api.asked) != 1 {
			t.Errorf("evicted are %v", api.asked)
		}
	})
}
