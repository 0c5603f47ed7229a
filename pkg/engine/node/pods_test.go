package node

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestSlim(t *testing.T) {
	t.Parallel()
	wanted := map[string]string{
		"class.sluice.dev": "LS", "class.sluice.dev/container.a": "BE", "koordinator.sh/qosClass": "LS",
		"scheduling.koordinator.sh/x": "1", "katalyst.kubewharf.io/qos_level": "x", "kubernetes.io/config.source": "file",
	}
	told := &workload.Pod{Annotations: maps.Clone(wanted), Labels: map[string]string{"app": "web"}}
	for _, key := range []string{"kubectl.kubernetes.io/last-applied-configuration", "notsluice.dev", "sluice.dev.example.com/class"} {
		told.Annotations[key] = "x"
	}
	if got := slim(told); !maps.Equal(got.Annotations, wanted) || !maps.Equal(got.Labels, told.Labels) {
		t.Errorf("%+v", got)
	}
	for i := range 2000 {
		told.Labels[fmt.Sprintf("example.com/%d", i)] = strings.Repeat("x", 63)
	}
	told.Labels["koordinator.sh/qosClass"] = "LS"
	first, again := slim(told), slim(told)
	size := 0
	for key, value := range first.Labels {
		size += len(key) + len(value)
	}
	if size > maxLabels || size < maxLabels-200 || first.Labels["koordinator.sh/qosClass"] != "LS" || !maps.Equal(first.Labels, again.Labels) {
		t.Errorf("%d bytes of labels are kept, Koordinator's class %q", size, first.Labels["koordinator.sh/qosClass"])
	}
}
