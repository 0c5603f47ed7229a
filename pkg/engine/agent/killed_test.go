package agent

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/topology/synth"
)

func pinned(name string) ask {
	return ask{name: name, milli: 1000, memory: 64, annotations: map[string]string{"class.sluice.dev": "LSR"}}
}

// TestRefusedOnceIsTriedAgain: the kernel refuses that a process moves the cgroup in which its namespace
// begins. An error like that from another container does not leave it on the CPUs of later pins.
func TestRefusedOnceIsTriedAgain(t *testing.T) {
	onLoop(t, fakekernel.MainlineV2(), knobSetup{}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 1000))
		h.Namespace("/kubepods/pod-web/c")
		h.run(pinned("db/c"))
		h.Unnamespace("/kubepods/pod-web/c")
		m, err := synth.Machine(twoNodes + " offline " + h.pins()["db/c"].String())
		if err != nil {
			t.Fatal(err)
		}
		h.Plug(m.Online)
		h.agent.SetMachine(m) // the pin gets other CPUs, and no runtime waits for an answer that could move web
		h.exclusive()
		h.spy.refused = nil
	})
}
