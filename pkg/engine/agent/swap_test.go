package agent

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

const (
	noSwap  = "Filename Type Size Used Priority\n"
	oneSwap = noSwap + "/dev/zram0 partition 1048572 0 100\n"
)

// TestSwapNever checks that containers of a class with swap: never are kept out of swap while the
// node has some, and get back what they had before. Others keep what they have.
func TestSwapNever(t *testing.T) {
	t.Parallel()
	const never = "classes: {LS: {memory-qos: {swap: never}}}\n"
	for _, f := range fakekernel.Flavours() {
		t.Run(f.Name, func(t *testing.T) {
			dir := hostDir(t, fstest.MapFS{"proc/swaps": file(noSwap)})
			setup := knobSetup{config: never, options: func(_ *knobNode, o *Options) { o.Host = os.DirFS(dir) }}
			onFlavour(t, f, setup, func(t *testing.T, h *knobNode) {
				knob, before := "memory.swappiness", "30"
				if h.V2 {
					knob, before = "memory.swap.max", itoa(64*mebi)
				}
				h.run(
					ask{name: "web/a", milli: 1000, memory: 64},
					ask{name: "allowed/a", milli: 1000, memory: 64, annotations: map[string]string{"memory-qos.sluice.dev": "{swap: allowed}"}},
					ask{name: "batch/a", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "BE"}},
				)
				for _, s := range h.specs {
					h.put(s.CgroupsPath, knob, before)
				}
				shows := func(when, web string) {
					t.Helper()
					h.sleep(neighboursInterval + time.Second)
					for name, s := range h.specs {
						want := before
						if name == "web/a" {
							want = web
						}
						if got := h.get(s.CgroupsPath, knob); got != want {
							t.Errorf("%s: %s of %s is %s, want %s", when, knob, name, got, want)
						}
					}
				}
				swaps := func(text string) {
					t.Helper()
					if err := os.WriteFile(filepath.Join(dir, "proc/swaps"), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				h.spy.took()
				shows("without swap", before)
				if n := h.spy.took(); n > 0 {
					t.Errorf("%d writes on a node without swap", n)
				}
				swaps(oneSwap)
				shows("with swap", "0")
				h.o.Node.Swap = true // as the next start finds it
				h.restart(never)
				shows("after a restart", "0")
				swaps(noSwap)
				shows("after swapoff", before)
				h.calm(t)
			})
		})
	}
}
