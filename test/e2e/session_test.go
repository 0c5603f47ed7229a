package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestSession does what somebody does who tries Sluice on a node: install it, look around, run
// pods of each class, make a mistake in the configuration and correct it, switch batch work off
// and on, and uninstall, which leaves every setting as it was.
func TestSession(t *testing.T) {
	rt := start(t, runtime.Options{})
	run(t, rt, classed("web", "LS", runtime.Resources{CPURequest: 250}))
	run(t, rt, classed("old", "BE", runtime.Resources{}))
	before, err := rt.Dump()
	must(t, err)
	node := install(t, rt, built(t, "sluice.deb"))

	prints := func(fails bool, words ...string) string {
		t.Helper()
		out, err := node.Command(nil, append([]string{"/usr/bin/sluice"}, words...)...)
		if (err != nil) != fails {
			t.Errorf("sluice %s: %v", strings.Join(words, " "), err)
		}
		return out
	}
	// The doctor's exit code depends on the machine.
	doctor, _ := node.Command(nil, "/usr/bin/sluice", "doctor")
	says(t, doctor, "cgroup", "PSI", "RUNTIME")
	must(t, node.Start())
	pin, cpu := pinOf(t, rt, "db", "LSR")
	batch := hog(t, rt, "crunch")

	says(t, prints(false, "status"), "containerd", "kube-system/db", "kube-system/web", "kube-system/crunch", "LSR")
	says(t, prints(false, "explain", "db"), "LSR", cpu.String())
	says(t, prints(false, "top", "--once"), "kube-system/db", "online", "batch")
	says(t, prints(false, "topology"), "CPU")

	asked := func() *status.Status {
		t.Helper()
		st, err := statusapi.NewClient(node.StatusSocket).Status()
		must(t, err)
		return st
	}
	const file = "/etc/sluice/sluice.yaml"
	configure := func(text string) { // writes the configuration as an editor does
		t.Helper()
		next := filepath.Join(node.Root, file+".new")
		must(t, os.WriteFile(next, []byte(text), 0o644))
		must(t, os.Rename(next, filepath.Join(node.Root, file)))
	}
	configure("control: {mode: onn}\n")
	await(t, "the mistake is refused", func() bool { return asked().Config.Refused == 1 })
	says(t, asked().Config.Problem, "control.mode", "onn", "on, preview or off")
	says(t, prints(true, "check", "-f", file), "control.mode")
	if mode := asked().Loop.Mode; mode != control.Preview {
		t.Errorf("after a mistake the loop is %s", mode)
	}
	must(t, os.WriteFile(filepath.Join(node.Root, "next.yaml"), []byte("control: {mode: on}\n"), 0o644))
	says(t, prints(true, "config", "diff", "/next.yaml"), "control.mode", "preview", "on")
	configure("control: {mode: on}\n")
	await(t, "the configuration is in force", func() bool { return asked().Loop.Mode == control.On })
	if c := asked().Config; c.Problem != "" {
		t.Errorf("the status tells of %q", c.Problem)
	}
	isOn(t, pin.Container("c"), cpu)

	prints(false, "batch", "off")
	await(t, "batch work is closed", func() bool { return asked().Loop.Batch.State == status.BatchClosed })
	says(t, prints(false, "batch"), "off")
	await(t, "batch work has its floor", func() bool { return boxed(t, batch) == batchFloor })
	says(t, prints(false, "log", "--why"), "batch is switched off")
	prints(false, "batch", "auto")
	await(t, "batch work is open", func() bool { return asked().Loop.Batch.State == status.BatchOpen })

	must(t, node.Stop())
	must(t, pin.Remove())
	must(t, batch.Remove())
	must(t, node.Dpkg("--purge", "sluice"))
	after, err := rt.Dump()
	must(t, err)
	if differences := before.Differences(after); len(differences) > 0 {
		t.Errorf("the purge has not given back %q", differences)
	}
}
