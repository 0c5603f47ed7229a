package annotation

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func BenchmarkRequest(b *testing.B) {
	// These are annotations of the kubelet and of a service mesh on a pod that doesn't use Sluice.
	mesh := []string{"kubernetes.io/config.seen=2026-11-21T00:00:00Z", "prometheus.io/scrape=true", "prometheus.io/port=9090", "sidecar.istio.io/status={}", "label pod-template-hash=5d4f", "label app.kubernetes.io/name=web"}
	for name, says := range map[string][]string{
		"plain": mesh,
		"rich": append([]string{"class.sluice.dev/pod=LSE", "cpus.sluice.dev=4", "numa.sluice.dev=single", "smt.sluice.dev=full-core", "l3.sluice.dev=pack",
			"near.sluice.dev=0000:3b:00.0", "memory-nodes.sluice.dev=local", "exclusive.sluice.dev=core", "exclusive-group.sluice.dev=db"}, mesh...),
		"koordinator": append([]string{qosClass + "LSR", spec + `{"preferredCPUBindPolicy":"FullPCPUs"}`, status + `{"cpuset":"0-3"}`}, mesh...),
		"BE":          append([]string{"class.sluice.dev=BE"}, mesh...), // with the class's knobs
		"knobs": append([]string{"cpu-burst.sluice.dev=100%", "cpu-identity.sluice.dev=0", "memory-qos.sluice.dev={lowPercent: 100, wmarkRatio: 95}",
			"io.sluice.dev={weight: 50, writeBPS: 10Mi}", "core-sched.sluice.dev=pay"}, mesh...),
	} {
		b.Run(name, func(b *testing.B) {
			rules := rules()
			p, c := pod(workload.Guaranteed, 4000, says...)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
