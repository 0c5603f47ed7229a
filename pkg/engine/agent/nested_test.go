package agent

import (
	"path"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

// TestNestedCgroup imitates a runtime such as crun, which puts processes into a cgroup below the
// container's and writes the spec's values to both.
func TestNestedCgroup(t *testing.T) {
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2(), fakekernel.OldMainlineV2()} {
		t.Run(f.Name, func(t *testing.T) {
			nest := knobSetup{options: func(h *knobNode, _ *Options) { h.inner = "container" }}
			onFlavour(t, f, nest, func(t *testing.T, h *knobNode) {
				h.run(
					ask{name: "db/c", milli: 2000, annotations: map[string]string{"class.sluice.dev": "LSR"}},
					ask{name: "web/c", milli: 1000, annotations: map[string]string{"cpu-burst.sluice.dev": "50%"}},
				)
				web := h.specs["web/c"]
				all, rest := "0-7", "2-7"
				both := func(when, want string) {
					t.Helper()
					for _, dir := range h.levels(web) {
						if got := h.get(dir, "cpuset.cpus.effective", "cpuset.cpus"); got != want {
							t.Errorf("%s: %s has CPUs %q, want %s", when, dir, got, want)
						}
					}
				}
				both("beside a pin", rest)
				inner := path.Join(web.CgroupsPath, h.inner)
				if got := h.get(inner, "cpu.max.burst", "cpu.cfs_burst_us"); got != "50000" {
					t.Errorf("the inner cgroup's burst is %s", got)
				}
				h.put(inner, "cpuset.cpus", "2-3")
				h.pass()
				both("after somebody else's change", rest)
				h.restart("")
				both("after a restart", rest)
				h.end("db/c")
				h.sleep(time.Second)
				both("without the pin", all)
				h.stop()
				if _, err := restore.Run(&restore.Host{Kernel: h.spy}, readJournal(t, h.o.Originals), false); err != nil {
					t.Error(err)
				}
				if got := h.get(inner, "cpu.max.burst", "cpu.cfs_burst_us"); got != "0" {
					t.Errorf("the inner cgroup's burst is %s after sluice restore", got)
				}
			})
		})
	}
}
