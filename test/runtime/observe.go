package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// CPUSets returns the kernel's cpuset of each cgroup below kubepods with a process, by the ID of
// the container or, for a pod's pause container, of the sandbox.
func (rt *Runtime) CPUSets() (map[string]cpuset.Set, error) {
	controller := rt.tree.Of("cpuset")
	file := "cpuset.cpus"
	if controller.V2 {
		file = "cpuset.cpus.effective"
	}
	sets := map[string]cpuset.Set{}
	for _, dir := range host.Below(controller.Path(rt.kubepods())) {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if host.Gone(err) || err == nil && len(procs) == 0 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if host.Gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if sets[idOf(dir)], err = cpuset.Parse(string(text)); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// Own returns a container's own file for that of the nested cgroup with its processes, and any
// other file itself.
func Own(file string) string {
	dir, name := filepath.Split(file)
	if filepath.Base(dir) == nested {
		return filepath.Join(filepath.Dir(filepath.Clean(dir)), name)
	}
	return file
}

// Uneven lists the settings of nested containers that differ between their outer cgroup and the
// one with their processes, except for limits that the outer one lacks.
func (rt *Runtime) Uneven() ([]string, error) {
	var uneven []string
	m := rt.tree.Of("cpuset")
	for _, dir := range host.Below(m.Path(rt.kubepods())) {
		if filepath.Base(dir) != nested {
			continue
		}
		for _, file := range []string{"cpuset.cpus.effective", "cpuset.mems.effective", "cpu.max", "cpu.max.burst", "memory.max", "memory.high", "memory.min", "memory.low"} {
			inner, err := os.ReadFile(filepath.Join(dir, file))
			outer, outerErr := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
			switch {
			case host.Gone(err) || host.Gone(outerErr):
			case err != nil || outerErr != nil:
				return nil, errors.Join(err, outerErr)
			case strings.HasPrefix(string(outer), "max"):
			case string(inner) != string(outer):
				uneven = append(uneven, fmt.Sprintf("%s: %s is %q, and %q below", idOf(dir), file, strings.TrimSpace(string(outer)), strings.TrimSpace(string(inner))))
			}
		}
	}
	return uneven, nil
}

// Sandboxes lists the IDs of all pods that the runtime knows.
func (rt *Runtime) Sandboxes() (map[string]bool, error) {
	ctx, cancel := host.CallContext()
	defer cancel()
	list, err := rt.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	ids := map[string]bool{}
	for _, sandbox := range list.GetItems() {
		ids[sandbox.GetId()] = true
	}
	return ids, err
}

// RemoveAll removes all pods except the given ones, including those whose creation was
// interrupted, with their cgroups.
func (rt *Runtime) RemoveAll(but ...*Pod) error {
	ids, err := rt.Sandboxes()
	if err != nil {
		return err
	}
	for _, pod := range but {
		delete(ids, pod.ID)
	}
	var errs []error
	for id := range ids {
		errs = append(errs, rt.removePod(id))
	}
	for _, dir := range host.Below(rt.tree.Of("cpu").Path(rt.kubepods())) {
		cgroup, err := filepath.Rel(rt.tree.Of("cpu").Dir, dir)
		if err != nil {
			return err
		}
		name := filepath.Base(dir)
		switch {
		case slices.ContainsFunc(but, func(p *Pod) bool { return p.Cgroup == "/"+cgroup }):
		case rt.options.Systemd && strings.HasSuffix(name, ".slice") && strings.Contains(name, "-pod"):
			errs = append(errs, systemctl("stop", name))
		case strings.HasPrefix(name, "pod"):
			// A CRI-O that is killed while it creates a container leaves "runc init" behind. The
			// kubelet ends all processes in the cgroup of a pod that is gone.
			errs = append(errs, rt.tree.KillAll("/"+cgroup), rt.tree.Remove("/"+cgroup))
		}
	}
	return errors.Join(errs...)
}

// PodsFile returns the text of a file of the cgroup that holds all pods, without surrounding
// blanks.
func (rt *Runtime) PodsFile(name string) (string, error) { return rt.tree.Read(rt.kubepods(), name) }

// WritePodsFile writes a file of the cgroup that holds all pods, as the kubelet does to enforce
// the node's allocatable resources.
func (rt *Runtime) WritePodsFile(name, value string) error {
	return rt.tree.Write(rt.kubepods(), name, value)
}

// ClassFile returns the text of a file of the cgroup of a QoS class ("besteffort") without
// surrounding blanks.
func (rt *Runtime) ClassFile(class, name string) (string, error) {
	return rt.tree.Read(rt.class(class), name)
}

// PodsCgroup returns the path of the cgroup that holds all pods, below each controller's root.
func (rt *Runtime) PodsCgroup() string { return "/" + strings.TrimPrefix(rt.kubepods(), "/") }
