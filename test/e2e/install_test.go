package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestInstall runs through a node's life with Sluice's package: install, run the service by its
// unit, upgrade it under a pinned container, and purge it. The upgrade moves nothing, and after
// the purge every setting is as before the installation.
func TestInstall(t *testing.T) {
	rt := start(t, runtime.Options{})
	run(t, rt, classed("online", "LS", runtime.Resources{CPURequest: 250}))
	run(t, rt, classed("batch", "BE", runtime.Resources{}))
	before, err := rt.Dump()
	must(t, err)

	node := install(t, rt, built(t, "sluice.deb"))
	must(t, node.Start())
	await(t, "a sign of life", func() bool { return node.Notified("WATCHDOG=1") })
	out, err := node.Command(nil, "/usr/bin/sluice", "status")
	must(t, err)
	if !strings.Contains(out, "containerd") {
		t.Errorf("sluice status prints\n%s", out)
	}
	pin, cpu := pinOf(t, rt, "pin", "LSR")
	upgrade(t, rt, node, pin, cpu)

	// The service is stopped first, because Sluice itself would restore the CPUs of a pod that
	// ends.
	must(t, node.Stop())
	must(t, pin.Remove())
	changed, err := rt.Dump()
	must(t, err)
	if len(before.Differences(changed)) == 0 {
		t.Error("Sluice has changed nothing: there is nothing to give back")
	}
	must(t, node.Dpkg("--purge", "sluice"))
	after, err := rt.Dump()
	must(t, err)
	if differences := before.Differences(after); len(differences) > 0 {
		t.Errorf("the purge has not given back %q", differences)
	}
	if left := files(t, node.Root, "etc", "usr", "var/lib/sluice", "run/sluice"); len(left) > 0 {
		t.Errorf("the purge has left %q", left)
	}
}

// upgrade installs another build and restarts the service, as dpkg and systemd do together. The
// pin keeps its CPU, and no setting changes.
func upgrade(t *testing.T, rt *runtime.Runtime, node *runtime.Installed, pin *runtime.Pod, cpu cpuset.Set) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(node.Root, "etc/sluice/sluice.yaml"), []byte("log: {level: debug}\n"), 0o644))
	settings, err := rt.Settings()
	must(t, err)
	sizes := watchCPUs(pin.Container("c"))
	was := node.PID()
	must(t, node.Dpkg("--force-confold", "--install", another(t)))
	must(t, node.Stop())
	if !node.Notified("STOPPING=1") {
		t.Error("it has not told that it stops")
	}
	must(t, node.Start())
	seen, err := sizes()
	must(t, err)
	if slices.Max(seen) != 1000 || slices.Min(seen) != 1000 {
		t.Errorf("the pin had %v CPUs", seen)
	}
	isOn(t, pin.Container("c"), cpu)
	now, err := rt.Settings()
	must(t, err)
	if differences := settings.Differences(now); len(differences) > 0 {
		t.Errorf("the upgrade changed %q", differences)
	}
	if st, err := statusapi.NewClient(node.StatusSocket).Status(); err != nil || !st.Machine.Pinned.Contains(cpu.First()) {
		t.Errorf("after the upgrade the plugin does not know the pin: %v", err)
	}
	runs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", node.PID()))
	must(t, err)
	installed, err := os.Stat(filepath.Join(node.Root, "usr/bin/sluice"))
	must(t, err)
	if node.PID() == was || !os.SameFile(runs, installed) {
		t.Error("the build from before the upgrade still runs")
	}
	if text, err := os.ReadFile(filepath.Join(node.Root, "etc/sluice/sluice.yaml")); err != nil || string(text) != "log: {level: debug}\n" {
		t.Errorf("the upgrade has replaced the configuration by %q (%v)", text, err)
	}
}

// install installs the package on a node of its own.
func install(t *testing.T, rt *runtime.Runtime, file string) *runtime.Installed {
	t.Helper()
	node, err := rt.NewInstalled()
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service's log:\n%s", node.Log())
		}
		node.Close()
	})
	must(t, node.Dpkg("--install", file))
	got := files(t, node.Root, "etc", "usr/bin", "usr/lib/systemd", "usr/lib/sluice", "usr/share")
	for _, want := range []string{
		"etc/sluice/sluice.yaml", "usr/bin/sluice", "usr/lib/systemd/system/sluice.service", "usr/lib/sluice/cycles.conf", "usr/lib/sluice/egress.conf",
		"usr/share/bash-completion/completions/sluice", "usr/share/doc/sluice/copyright", "usr/share/doc/sluice/examples/containerd/sluice-2.toml",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not installed; there are %q", want, got)
		}
	}
	return node
}

// files lists the files below folders of the root.
func files(t *testing.T, root string, dirs ...string) []string {
	t.Helper()
	var all []string
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry os.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err == nil && !entry.IsDir() {
				name, err = filepath.Rel(root, name)
				all = append(all, name)
			}
			return err
		})
		must(t, err)
	}
	return all
}

// built returns the path of a file that make deb or make image has built.
func built(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("../../bin", name))
	must(t, err)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%v: run make deb image", err)
	}
	return file
}

// another returns the package of another build, of a later version.
func another(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "sluice.deb")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "sluice"), "./plugins/sluice")
	pack := exec.Command("bin/tools/nfpm", "package", "--config", "configs/package/nfpm.yaml", "--packager", "deb", "--target", file)
	for _, cmd := range []*exec.Cmd{build, pack} {
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "VERSION=v99.0.0", "GOARCH=amd64", "SLUICE="+filepath.Join(dir, "sluice"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, out)
		}
	}
	return file
}

// TestImage lets containerd run the image that make image builds.
func TestImage(t *testing.T) {
	rt := start(t, runtime.Options{})
	_, err := rt.Ctr("images", "import", "--local", "--snapshotter", "native", built(t, "sluice-image.tar"))
	must(t, err)
	runc, err := filepath.Abs("../../bin/tools/runc")
	must(t, err)
	out, err := rt.Ctr("run", "--rm", "--snapshotter", "native", "--runc-binary", runc, "--cgroup", rt.CgroupRoot()+"/image",
		"localhost/sluice/sluice:latest", "image", "/usr/bin/sluice", "version")
	must(t, err)
	if want, err := exec.Command(built(t, "sluice"), "version").Output(); err != nil || !strings.HasSuffix(out, string(want)) { // ctr prints warnings before it
		t.Errorf("sluice version prints %q, want %q (%v)", out, want, err)
	}
}
