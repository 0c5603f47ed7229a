package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
)

// TestUnit has systemd run the service, with all that the unit forbids it: it still
// pins, raises the node's watermarks and is woken by pressure. systemd starts it again
// when it is killed, and when it hangs. (Debian's kernel has no core scheduling.)
func TestUnit(t *testing.T) {
	rt := start(t, runtime.Options{Systemd: true})
	prepareUnit(t, rt)
	before := watermarks(t)
	systemctl(t, "start", "sluice")
	t.Cleanup(func() {
		systemctl(t, "stop", "sluice")
		if t.Failed() {
			t.Logf("the service's log ends:\n%s", tail(read(t, unitLog), 60))
		}
	})
	if text := systemctl(t, "show", "--property=StatusText", "sluice"); !strings.Contains(text, "Connected to containerd") {
		t.Errorf("once it is ready systemd says %q", text)
	}

	n := &node{t: t, rt: rt}
	asks := []ask{{name: "be", class: "BE"}, {name: "lse", class: "LSE", cpus: 2}}
	pods := n.pod(asks...)
	n.start(pods, asks[0])
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
	must(t, pods.Remove())
}

const unitLog = "/run/sluice-unit.log"

// prepareUnit makes the guest a node with the unit: what it is called after, a log
// without a journal, and the runtime's socket where it is by default.
func prepareUnit(t *testing.T, rt *runtime.Runtime) {
	t.Helper()
	for file, text := range map[string]string{
		"/etc/systemd/system/sysinit.target":                "[Unit]\nDefaultDependencies=no\n",
		"/etc/systemd/system/basic.target":                  "[Unit]\nDefaultDependencies=no\n",
		"/etc/systemd/system/shutdown.target":               "[Unit]\nDefaultDependencies=no\n",
		"/etc/systemd/system/sluice.service.d/patient.conf": "[Service]\nStandardError=append:" + unitLog + "\nTimeoutStartSec=300\nTimeoutStopSec=3\nWatchdogSec=10\n",
		"/etc/sluice/sluice.yaml":                           "control: {mode: on}\nmemory: {globalWatermark: auto}\nlog: {level: debug}\n",
		"/var/tmp/.keep":                                    "",
		"/usr/bin/.keep":                                    "",
		"/run/nri/.keep":                                    "",
	} {
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	must(t, os.Symlink("/bin/sluice", "/usr/bin/sluice"))
	must(t, os.Symlink("/run", "/var/run"))
	must(t, unix.Mount(filepath.Dir(rt.NRISocket), "/run/nri", "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/run/nri", unix.MNT_DETACH)) })
	must(t, rt.DaemonReload())
}

func watermarks(t *testing.T) string {
	t.Helper()
	return read(t, "/proc/sys/vm/min_free_kbytes") + " " + read(t, "/proc/sys/vm/watermark_scale_factor")
}

func unitStatus(t *testing.T) *status.Status {
	t.Helper()
	st, err := status.NewClient(status.DefaultSocket).Status()
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
