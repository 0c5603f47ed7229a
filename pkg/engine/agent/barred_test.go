package agent

import (
	"testing"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestPodsHaveFewerCPUs checks that pins use no CPUs that the cgroup of all pods lacks (systemd's
// AllowedCPUs=), and that containers that share CPUs get no set of their own.
func TestPodsHaveFewerCPUs(t *testing.T) {
	onFlavours(t, knobSetup{}, func(t *testing.T, h *knobNode) {
		h.Mkdir("/kubepods")
		if !h.V2 { // in v1 a set contains those of the cgroups below it
			h.put("/kubepods/burstable", "cpuset.cpus", "2-7")
			h.put("/kubepods/besteffort", "cpuset.cpus", "2-7")
		}
		h.put("/kubepods", "cpuset.cpus", "2-7")
		lsr := func(name string) ask {
			return ask{name: name, milli: 2000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}}
		}
		h.run(lsr("db/main"))
		barred := cpuset.Range(0, 1)
		check := func(name string) cpuset.Set {
			t.Helper()
			c := h.container(name)
			if c.CPUs.Size() != 2 || c.CPUs.Overlaps(barred) {
				t.Errorf("%s runs on CPUs %s", name, c.CPUs)
			}
			return c.CPUs
		}
		first := check("db/main")
		h.run(lsr("db2/main"))
		if second := check("db2/main"); first.Overlaps(second) {
			t.Errorf("two pins on %s and %s", first, second)
		}
		h.end("db/main")
		h.end("db2/main")
		h.run(ask{name: "web/main", milli: 500, memory: 64, annotations: map[string]string{"class.sluice.dev": "LS"}})
		h.pass()
		if s, err := h.agent.Status(); err != nil || s.Machine.External != barred {
			t.Errorf("CPUs %s are told as not Sluice's to give, %v", s.Machine.External, err)
		}
		if got := h.container("web/main"); !got.CPUs.IsEmpty() {
			t.Errorf("a container that may have all of its pod's CPUs is confined to %s", got.CPUs)
		}
		h.put("/kubepods", "cpuset.cpus", "0-7")
		h.pass()
		h.run(ask{name: "db3/main", milli: 8000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LS"}})
		if s, err := h.agent.Status(); err != nil || !s.Machine.External.IsEmpty() {
			t.Errorf("CPUs %s are still told as not Sluice's to give, %v", s.Machine.External, err)
		}
	})
}
