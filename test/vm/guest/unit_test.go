package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestUnit lets systemd run the service with all restrictions of the unit: it can still pin, raise
// the node's watermarks, change the scheduler's features and be woken by pressure. systemd restarts
// it when it is killed and when it hangs. (Debian's kernel has no core scheduling.) The commands of
// docs/install.md install, restart and remove it.
func TestUnit(t *testing.T) {
	rt := start(t, runtime.Options{Systemd: true})
	prepareUnit(t, rt)
	must(t, unix.Mount("debugfs", "/sys/kernel/debug", "debugfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/sys/kernel/debug", unix.MNT_DETACH)) })
	before, features := watermarks(t), schedulerFeatures(t)
	always := strings.Replace(features, " NI_RANDOM ", " NO_NI_RANDOM ", 1)
	if always == features {
		t.Logf("nothing to change here: this kernel has no NI_RANDOM: %s", features)
	}
	t.Cleanup(func() {
		if t.Failed() {
			_ = exec.Command("systemctl", "stop", "sluice").Run() // it may have been removed already
			t.Logf("the service's log ends:\n%s", tail(read(t, unitLog), 60))
		}
	})
	documented(t, "sluice check -f /etc/sluice/sluice.yaml --host-root /")
	systemctl(t, "stop", "sluice") // otherwise it would use the file that is being replaced
	must(t, os.WriteFile("/etc/sluice/sluice.yaml", []byte("control: {mode: on}\nmemory: {globalWatermark: auto}\nnewidleBalance: always\nlog: {level: debug}\n"), 0o644))
	documented(t, "systemctl restart sluice")
	if text := systemctl(t, "show", "--property=StatusText", "sluice"); !strings.Contains(text, "Connected to containerd") {
		t.Errorf("once it is ready systemd says %q", text)
	}

	n := &node{t: t, rt: rt}
	asks := []ask{{name: "be", class: "BE"}, {name: "lse", class: "LSE", cpus: 2}}
	pods := n.pod(asks...)
	batch := n.start(pods, asks[0])
	pin := n.start(pods, asks[1])
	cpus := n.cpus(pin)
	if cpus.Size() != 2 {
		t.Errorf("the pin has CPUs %s", cpus)
	}
	if c := unitStatus(t).Counters; c.WriteErrors > 0 || c.Panics > 0 {
		t.Errorf("counters are %+v", c)
	}
	if got := watermarks(t); got == before {
		t.Errorf("the node's watermarks are %s, as before", got)
	}
	if got := schedulerFeatures(t); got != always {
		t.Errorf("the scheduler's features are %s, want %s", got, always)
	}
	if log := read(t, unitLog); strings.Contains(log, "Not all pressure wakes") || strings.Contains(log, "permitted") || strings.Contains(log, "denied") || strings.Contains(log, "read-only") {
		t.Errorf("the unit forbids too much:\n%s", log)
	}

	for _, signal := range []string{"KILL", "STOP"} {
		was := systemctl(t, "show", "--property=MainPID", "sluice")
		systemctl(t, "kill", "--kill-who=main", "--signal="+signal, "sluice")
		await(t, func() error {
			is := systemctl(t, "show", "--property=MainPID", "sluice")
			state := systemctl(t, "show", "--property=SubState", "sluice")
			if is == was || state != "SubState=running" {
				return fmt.Errorf("after %s %s is %s", signal, is, state)
			}
			return nil
		})
		if n.cpus(pin) != cpus || len(unitStatus(t).Containers) != 2 {
			t.Errorf("after %s the pin has CPUs %s, not %s; containers are %v", signal, n.cpus(pin), cpus, unitStatus(t).Containers)
		}
	}

	documented(t, "sluice restore")
	for _, c := range []*runtime.Container{batch, pin} {
		if got := n.cpus(c); got != online(t, "cpu") {
			t.Errorf("after the removal a container has CPUs %s", got)
		}
	}
	if got := watermarks(t); got != before {
		t.Errorf("after the removal the node's watermarks are %s, not %s", got, before)
	}
	if got := schedulerFeatures(t); got != features {
		t.Errorf("after the removal the scheduler's features are %s, not %s", got, features)
	}
	must(t, pods.Remove())
}

// documented executes the block of docs/install.md that contains the line.
func documented(t *testing.T, line string) {
	t.Helper()
	page, err := markdown.Parse("docs/install.md", read(t, "/docs/install.md"))
	must(t, err)
	var found []string
	for _, b := range page.Blocks {
		if strings.Contains("\n"+b.Text, "\n"+line+"\n") {
			found = append(found, b.Text)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d blocks have the line %s", len(found), line)
	}
	cmd := exec.Command("/bin/sh", "-euxc", found[0])
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "PATH=/usr/bin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

const unitLog = "/run/sluice-unit.log"

// prepareUnit makes the guest a node for the unit: with a host name, a log without a journal, and
// the runtime's socket at its default path.
func prepareUnit(t *testing.T, rt *runtime.Runtime) {
	t.Helper()
	for file, text := range map[string]string{
		"/etc/systemd/system/sysinit.target":                "[Unit]\nDefaultDependencies=no\n",
		"/etc/systemd/system/basic.target":                  "[Unit]\nDefaultDependencies=no\n",
		"/etc/systemd/system/shutdown.target":               "[Unit]\nDefaultDependencies=no\n",
		"/etc/systemd/system/sluice.service.d/patient.conf": "[Service]\nStandardError=append:" + unitLog + "\nTimeoutStartSec=300\nTimeoutStopSec=3\nWatchdogSec=10\n",
		"/var/tmp/.keep":                                    "",
		"/usr/bin/.keep":                                    "",
		"/run/nri/.keep":                                    "",
	} {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	must(t, os.Symlink("/run", "/var/run"))
	must(t, unix.Mount(filepath.Dir(rt.NRISocket), "/run/nri", "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/run/nri", unix.MNT_DETACH)) })
}

func watermarks(t *testing.T) string {
	t.Helper()
	return read(t, "/proc/sys/vm/min_free_kbytes") + " " + read(t, "/proc/sys/vm/watermark_scale_factor")
}

// schedulerFeatures returns the names with a space before and after each.
func schedulerFeatures(t *testing.T) string {
	t.Helper()
	return " " + strings.Join(strings.Fields(read(t, "/"+newidle.File)), " ") + " "
}

func unitStatus(t *testing.T) *status.Status {
	t.Helper()
	st, err := statusapi.NewClient(status.DefaultSocket).Status()
	must(t, err)
	return st
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
