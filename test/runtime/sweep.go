package runtime

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/test/host"
)

// sweep removes the trees and folders of Runtimes whose test process ended before Close, because
// it was killed or reached the test binary's timeout.
func sweep(hierarchies []host.Mount) error {
	var errs []error
	left := make(map[string]bool)
	for _, m := range hierarchies {
		paths, _ := filepath.Glob(m.Path(namePrefix + "*"))
		for _, path := range paths {
			left[filepath.Base(path)] = true
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), namePrefix+"*"))
	for _, dir := range dirs {
		left[filepath.Base(dir)] = true
	}
	for name := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(name, namePrefix), "-")
		owner, err := strconv.Atoi(pid)
		if err != nil || !errors.Is(syscall.Kill(owner, 0), syscall.ESRCH) {
			continue
		}
		errs = append(errs, clean(&host.Tree{Name: name, Mounts: hierarchies}, filepath.Join(os.TempDir(), name)))
	}
	return errors.Join(errs...)
}

// clean ends the tree's processes and removes its cgroups, its network, its folder and what is
// mounted there. After a failure the folder stays for inspection.
func clean(t *host.Tree, dir string) error {
	sockets := shimSockets(dir)
	if err := errors.Join(t.Thaw(t.Name), t.KillAll(t.Name), t.Remove(t.Name), host.UnmountBelow(dir)); err != nil {
		return err
	}
	if err := removeNetwork(dir); err != nil {
		return err
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// shimSockets lists the sockets of the shims that still run. They are outside of the runtime's own
// folders, and a killed shim leaves its socket behind. containerd 2 stores the address in the
// bundle's bootstrap.json, 1.7 in the file address.
func shimSockets(dir string) []string {
	var sockets []string
	add := func(address string) {
		if socket, ok := strings.CutPrefix(strings.TrimSpace(address), "unix://"); ok {
			sockets = append(sockets, socket)
		}
	}
	bundles, _ := filepath.Glob(filepath.Join(dir, "state", "io.containerd.runtime.v2.task", "k8s.io", "*"))
	for _, bundle := range bundles {
		if text, err := os.ReadFile(filepath.Join(bundle, "address")); err == nil {
			add(string(text))
		}
		var bootstrap struct {
			Address string `json:"address"`
		}
		if text, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil && json.Unmarshal(text, &bootstrap) == nil {
			add(bootstrap.Address)
		}
	}
	return sockets
}
