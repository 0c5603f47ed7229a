package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/runtime"
)

// node is this machine as a node.
type node struct {
	rt      *runtime.Runtime
	service *runtime.Installed
	ctr     string // folder of containerd's programs
	dir     string // folder in which blocks are executed
	layers  string
	config  string // the service's configuration; "" for the package's

	mu sync.Mutex // held while one systemctl runs
}

const (
	plugins      = "/opt/nri/plugins" // the runtime's default
	preinstalled = plugins + "/50-sluice"
)

func client() *statusapi.Client { return statusapi.NewClient(status.DefaultSocket) }

// begin makes this machine a node, with a containerd that has a pod of each kind.
func begin(t *testing.T) *node {
	t.Helper()
	options := runtime.Options{PluginDir: plugins, PluginConfigDir: "/etc/nri/conf.d"}
	if err := runtime.Unavailable(options); err != nil {
		t.Skip(err)
	}
	repository, err := filepath.Abs(root)
	must(t, err)
	n := &node{ctr: filepath.Join(repository, "bin/tools/2"), dir: t.TempDir(), layers: t.TempDir()}
	for name, file := range map[string]string{
		"bin": "bin", "configs": "configs", "sluice.deb": "bin/sluice.deb", "pod.yaml": "configs/examples/ls.yaml",
	} {
		file = filepath.Join(repository, file)
		if _, err := os.Stat(file); err != nil {
			t.Fatalf("%v: run make build tools deb image", err)
		}
		must(t, os.Symlink(file, filepath.Join(n.dir, name)))
	}
	must(t, unix.Mount("sluice-docs", "/run", "tmpfs", 0, "mode=755"))
	must(t, n.layer())
	t.Cleanup(func() { must(t, n.unlayer()) })
	n.rt, err = runtime.Start(options)
	must(t, err)
	t.Cleanup(func() { must(t, n.rt.Close()) })
	n.service, err = n.rt.Here()
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the service's log:\n%s", n.service.Log())
		}
		must(t, n.service.Close())
	})
	listener, err := net.Listen("unix", systemctlSocket)
	must(t, err)
	server := &http.Server{Handler: n}
	go server.Serve(listener)
	t.Cleanup(func() { must(t, server.Close()) })
	must(t, os.MkdirAll("/run/systemd/system", 0o755)) // the package's scripts recognize systemd by it
	must(t, os.MkdirAll("/run/containerd", 0o711))
	must(t, os.Symlink(n.rt.Socket(), "/run/containerd/containerd.sock"))
	for name, class := range map[string]string{"db": "LSR", "web": "LS", "crunch": "BE"} {
		spec := runtime.PodSpec{Name: name, Annotations: map[string]string{"class.sluice.dev": class}, Containers: []runtime.ContainerSpec{{Name: "main"}}}
		if class == "LSR" {
			spec.Containers[0].Resources = runtime.Whole(1000, 64<<20)
		}
		_, err := n.rt.Run(spec)
		must(t, err)
	}
	return n
}

// written returns the folders that the blocks write to.
func written() []string { return []string{"/etc", "/usr", "/var", "/opt"} }

// layer mounts an empty layer over each folder, which receives all writes from now on.
func (n *node) layer() error {
	if err := unix.Mount("sluice-docs", n.layers, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, dir := range written() {
		upper, work := filepath.Join(n.layers, dir, "upper"), filepath.Join(n.layers, dir, "work")
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)
		if err := unix.Mount("sluice-docs", dir, "overlay", 0, options); err != nil {
			return fmt.Errorf("a layer over %s: %w", dir, err)
		}
	}
	return errors.Join(
		os.RemoveAll("/var/lib/sluice"), // files of this machine's own Sluice, hidden by the layer, which the test must not restore
		os.WriteFile("/usr/bin/systemctl", []byte(systemctl), 0o755),
		os.WriteFile("/etc/hosts", []byte("127.0.0.1 localhost node-1\n"), 0o644),
	)
}

func (n *node) unlayer() error {
	var errs []error
	for _, dir := range append(written(), n.layers) {
		errs = append(errs, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return errors.Join(errs...)
}

// bare removes Sluice from the node, whatever its state, and restores what it changed.
func (n *node) bare(t *testing.T) {
	t.Helper()
	must(t, n.systemctl("stop", "sluice"))
	if err := os.Remove(preinstalled); err == nil {
		must(t, n.systemctl("restart", "containerd"))
	}
	if _, err := os.Stat("/var/lib/sluice"); err == nil {
		out, err := exec.Command(filepath.Join(n.dir, "bin/sluice"), "restore").CombinedOutput()
		if err != nil {
			t.Fatalf("sluice restore: %v: %s", err, out)
		}
	}
	must(t, errors.Join(n.unlayer(), n.layer(), os.RemoveAll(filepath.Dir(status.DefaultSocket))))
	n.config = ""
}

// runs makes the package's service run with the configuration.
func (n *node) runs(t *testing.T, config string) {
	t.Helper()
	if _, err := client().Status(); err == nil && n.config == config {
		return
	}
	if _, err := os.Stat("/usr/bin/sluice"); n.config == "" || errors.Is(err, fs.ErrNotExist) {
		n.bare(t)
		must(t, n.service.Dpkg("--install", filepath.Join(n.dir, "sluice.deb")))
	}
	must(t, os.WriteFile("/etc/sluice/sluice.yaml", []byte(config), 0o644))
	n.config = config
	if strings.Contains(config, "tokenFile") { // the page says how to make the token, and then starts Sluice
		return
	}
	must(t, n.systemctl("restart", "sluice"))
}

// These constants belong to the program systemctl, which passes its arguments to the test.
const (
	systemctlSocket = "/run/systemctl.sock"
	systemctl       = `#!/bin/sh
exec curl --silent --show-error --fail-with-body --unix-socket ` + systemctlSocket + ` --data-binary "$*" http://systemd/
`
)

// ServeHTTP answers the program.
func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	words, err := io.ReadAll(r.Body)
	if err == nil {
		err = n.systemctl(strings.Fields(string(words))...)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// systemctl does what systemd does for a verb, flags and a unit.
func (n *node) systemctl(words ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := slices.Contains(words, "--now")
	words = slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") })
	stop := func() error {
		if !n.service.Running() {
			return nil
		}
		return n.service.Stop()
	}
	switch strings.TrimSuffix(strings.Join(words, " "), ".service") {
	case "daemon-reload":
		return nil
	case "restart containerd":
		return n.rt.Restart()
	case "enable sluice":
		_, err := n.service.Unit("WantedBy")
		return err
	case "disable sluice":
		_, err := n.service.Unit("WantedBy")
		if err == nil && now {
			err = stop()
		}
		return err
	case "start sluice":
		return n.service.Start()
	case "stop sluice":
		return stop()
	case "restart sluice":
		return errors.Join(stop(), n.service.Start())
	case "try-restart sluice":
		if !n.service.Running() {
			return nil
		}
		return errors.Join(stop(), n.service.Start())
	}
	return fmt.Errorf("the test does not know systemctl %s", strings.Join(words, " "))
}
