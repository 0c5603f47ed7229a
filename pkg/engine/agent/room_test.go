package agent

import (
	"strconv"
	"testing"
)

// TestPodKeepsRoom checks that a pod's limit leaves room for memory that an ended container left
// in it.
func TestPodKeepsRoom(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		batch := `{"containers":{"a":{"limits":{"kubernetes.io/batch-memory":"1Gi"}},"b":{"limits":{"kubernetes.io/batch-memory":"2Gi"}}}}`
		annotations := map[string]string{"node.koordinator.sh/extended-resource-spec": batch, "class.sluice.dev": "BE"}
		h.run(ask{name: "batch/a", qos: "besteffort", annotations: annotations}, ask{name: "batch/b", qos: "besteffort", annotations: annotations})
		limit := func() string {
			return h.get("/kubepods/besteffort/pod-batch", "memory.max", "memory.limit_in_bytes")
		}
		want := strconv.Itoa(3 << 30)
		if got := limit(); got != want {
			t.Errorf("with both: %s", got)
		}
		h.end("batch/a")
		h.pass()
		if got := limit(); got != want {
			t.Errorf("after one: %s", got)
		}
	})
}

// TestResizeLetsNoOtherIn starts another container of the pod between the kubelet's announcement
// of a resize and its writes.
func TestResizeLetsNoOtherIn(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		burst := map[string]string{"cpu-burst.sluice.dev": "100%", "class.sluice.dev": "LS"}
		h.run(ask{name: "web/a", milli: 1000, memory: 64, annotations: burst})
		h.announce("web/a", 500)
		h.kubelet("/kubepods/pod-web", 2000)
		h.run(ask{name: "web/b", milli: 1000, memory: 64, annotations: burst})
		if got := h.get("/kubepods/pod-web/a", "cpu.max.burst", "cpu.cfs_burst_us"); got != "0" {
			t.Errorf("burst %s during the resize", got)
		}
	})
}
