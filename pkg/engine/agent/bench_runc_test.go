package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/bench/cgroups"
)

// BenchmarkRuncUpdate is the baseline of BenchmarkClassChange: what a runtime does to update a
// container, without the runtime's own daemon and locks. One operation is one container; the
// benchmark updates 500 in turn.
func BenchmarkRuncUpdate(b *testing.B) {
	runc, err := filepath.Abs("../../../bin/tools/runc")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(runc); err != nil {
		b.Skip("SKIPPED, no bin/tools/runc: make tools builds it")
	}
	tree := cgroups.New(b, b.TempDir())
	r := &runtimeRoot{b: b, runc: runc, root: b.TempDir()}
	const containers = 4
	var ids []string
	for i := range containers {
		id := fmt.Sprintf("sluice-bench-%d-%d", os.Getpid(), i)
		r.create(id, tree.Below("/kubepods/burstable/pod/"+id))
		ids = append(ids, id)
	}
	var updates []string
	for i, text := range []string{
		`{"cpu": {"shares": 2, "quota": 100000, "period": 100000, "burst": 0}, "memory": {"reservation": 214748364}, "blockIO": {"weight": 20}}`,
		`{"cpu": {"shares": 1024, "quota": 100000, "period": 100000, "burst": 100000}, "memory": {"reservation": 880119808}, "blockIO": {"weight": 200}}`,
	} {
		file := filepath.Join(r.root, fmt.Sprintf("update-%d.json", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		updates = append(updates, file)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		r.do("update", "--resources", updates[i/containers%2], ids[i%containers])
		took = append(took, time.Since(began))
	}
	r.do("update", "--resources", updates[1], ids[0])
	for _, written := range tree.Dump("/kubepods/burstable/pod/" + ids[0]) {
		if filepath.Base(written.File) == "cpu.cfs_burst_us" && string(written.Text) != "100000" {
			b.Fatalf("runc update has left the burst at %s", written.Text)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/container")
	b.ReportMetric(float64(500*took[len(took)/2].Microseconds())/1000, "ms/500")
}

// runtimeRoot runs runc with a state folder of its own.
type runtimeRoot struct {
	b          *testing.B
	runc, root string
}

func (r *runtimeRoot) do(args ...string) {
	r.b.Helper()
	cmd := exec.Command(r.runc, append([]string{"--root", filepath.Join(r.root, "state"), "--log", filepath.Join(r.root, "log")}, args...)...)
	if err := cmd.Run(); err != nil {
		log, _ := os.ReadFile(filepath.Join(r.root, "log"))
		r.b.Fatalf("runc %v: %v\n%s", args, err, log)
	}
}

// create makes a container that stops before its first instruction.
func (r *runtimeRoot) create(id, cgroup string) {
	r.b.Helper()
	bundle := filepath.Join(r.root, id)
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
		r.b.Fatal(err)
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.2.0",
		"process":    map[string]any{"args": []string{"/nothing"}, "cwd": "/", "user": map[string]int{"uid": 0, "gid": 0}},
		"root":       map[string]any{"path": "rootfs"},
		"mounts":     []map[string]string{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux": map[string]any{
			"cgroupsPath": cgroup,
			"namespaces":  []map[string]string{{"type": "pid"}, {"type": "mount"}},
			"resources":   map[string]any{"cpu": map[string]int{"shares": 512, "quota": 100000, "period": 100000}, "memory": map[string]int{"limit": 1 << 30}},
		},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "rootfs/nothing"), nil, 0o700) // the program never runs
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o600)
	}
	if err != nil {
		r.b.Fatal(err)
	}
	r.b.Cleanup(func() { r.do("delete", "--force", id) })
	r.do("create", "--bundle", bundle, id)
}
