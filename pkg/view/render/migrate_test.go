package render

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/migrate"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// migrating is a node whose kubelet has given CPUs to two pods.
func migrating(t *testing.T) *migrate.Facts {
	t.Helper()
	m, err := synth.Machine("2 packages 8 cores 2 threads")
	if err != nil {
		t.Fatal(err)
	}
	set := cpuset.MustParse
	return &migrate.Facts{
		Node: "n1", Service: true, Machine: m, Config: config.Default(),
		CPU: peers.CPUManagerState{
			File: "/var/lib/kubelet/cpu_manager_state", Policy: "static", Default: set("0,3-8,10-16,19-24,26-31"),
			Pins: []peers.Pin{{PodUID: "1", Container: "db", CPUs: set("1-2,17-18")}, {PodUID: "2", Container: "feed", CPUs: set("9,25")}},
		},
		Kubelet: peers.KubeletConfig{
			File: "/var/lib/kubelet/config.yaml", CPUManagerPolicy: "static", CPUManagerPolicyOptions: map[string]string{"full-pcpus-only": "true"},
			ReservedSystemCPUs: "0,16",
		},
		Containers: []status.Container{
			{ID: "a", PodUID: "1", Ref: "data/db-0/db", Class: workload.LS, Requested: 4000},
			{ID: "b", PodUID: "1", Ref: "data/db-0/proxy", Class: workload.LS, Requested: 500},
			{ID: "c", PodUID: "2", Ref: "shop/quotes-7d4b9/feed", Class: workload.LS, Requested: 2000},
		},
	}
}

func migration(t *testing.T, f *migrate.Facts) string {
	t.Helper()
	p := migrate.New(f)
	return text(t, func(w io.Writer) error { return Migration(w, &p) })
}

func TestMigration(t *testing.T) {
	t.Parallel()
	golden(t, "migrate", migration(t, migrating(t)))
	for what, test := range map[string]struct {
		change func(*migrate.Facts)
		want   string
	}{
		"nothing is static":  {func(f *migrate.Facts) { f.CPU.Policy, f.Kubelet.CPUManagerPolicy = "none", "none" }, "there is nothing to migrate"},
		"the memory manager": {func(f *migrate.Facts) { f.CPU.Policy, f.Memory.Policy = "none", "Static" }, "memory manager is static, its CPU manager is not"},
		"no pins":            {func(f *migrate.Facts) { f.CPU.Pins = nil }, "has given no container CPUs of its own"},
		"a refusal":          {func(f *migrate.Facts) { f.Containers[1].Requested = 32000 }, "data/db-0/db would be refused: "},
		"a class that stays": {func(f *migrate.Facts) { f.Containers[2].Class = workload.LSE }, "its own"},
		"long names": {func(f *migrate.Facts) {
			f.Containers[2].Ref = strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253) + "/feed"
		}, "pppp"},
	} {
		f := migrating(t)
		test.change(f)
		out := migration(t, f)
		if !strings.Contains(out, test.want) {
			t.Errorf("%s: %q is not in\n%s", what, test.want, out)
		}
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > migrationColumns {
				t.Errorf("%s: a line has %d columns: %s", what, n, line)
			}
		}
	}
}
