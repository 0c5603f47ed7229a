package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/bench/cgroups"
	"github.com/sluice-dev/sluice/test/protocol"
)

const everyKnob = `
pools: {mode: exclusive, list: [{name: online}, {name: batch, cpus: 1}]}
classes:
  LS: {cpu-burst: 100%, weight: 200%, memory-qos: {highPercent: 80}, io: {weight: 200, readBPS: 900Mi, writeBPS: 100Mi, readIOPS: 90000, writeIOPS: 10000}}
`

// BenchmarkKnobs measures the process with 500 containers in 250 pods that have every knob in
// cgroups of this host and are compared at each driftInterval: its memory, and its CPU time over
// five seconds without events.
func BenchmarkKnobs(b *testing.B) {
	s := newSide(b, 0, nil, "burstable")
	host := s.Host(b, fmt.Sprintf("%d cores", runtime.NumCPU())) // CPUs that this host's cpusets accept
	tree := cgroups.New(b, host)
	pods := map[string]bool{}
	for i := range 250 {
		pod, err := s.RunPod(protocol.Pod{Name: fmt.Sprintf("knobs-%d", i)})
		if err != nil {
			b.Fatal(err)
		}
		for j := range 2 {
			c, err := s.Run(pod, fmt.Sprintf("c%d", j), protocol.Requests{CPU: 500, Limit: 1000, Memory: 64 << 20})
			if err != nil {
				b.Fatal(err)
			}
			tree.Make(c.Linux.CgroupsPath)
			if parent := pod.Linux.CgroupParent; !pods[parent] {
				pods[parent] = true
				tree.Write(parent, "cpu.cfs_quota_us", "200000")
			}
			tree.Write(c.Linux.CgroupsPath, "cpu.cfs_quota_us", "100000")
		}
	}
	config := filepath.Join(b.TempDir(), "sluice.yaml")
	if err := os.WriteFile(config, []byte(everyKnob), 0o600); err != nil {
		b.Fatal(err)
	}
	s.plugin = s.Sluice(b, sluice, host, config)
	settled(b, tree, pods)
	for b.Loop() {
		use := measure(b, 5*time.Second, s.plugin.PID())[0]
		b.ReportMetric(100*use.CPUs, "cpu-%")
		b.ReportMetric(use.MiB(), "MiB")
	}
	b.ReportMetric(0, "ns/op")
}

// settled waits until every pod has its burst.
func settled(b *testing.B, tree *cgroups.Tree, pods map[string]bool) {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		missing := 0
		for pod := range pods {
			text, err := os.ReadFile(tree.Files(pod, "cpu.cfs_burst_us")[0])
			if err != nil {
				b.Fatal(err)
			}
			if strings.TrimSpace(string(text)) == "0" {
				missing++
			}
		}
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d pods have no burst after 10 seconds", missing, len(pods))
		}
	}
}
