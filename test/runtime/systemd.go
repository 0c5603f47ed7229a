package runtime

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// slices returns the folders of a pod's cgroup with the systemd driver if the kubelet's cgroup
// root is rt's own. Each is named with all those above it:
// "root.slice/root-kubepods.slice/root-kubepods-burstable.slice/...".
func (rt *Runtime) slices(parts ...string) []string {
	name := strings.ReplaceAll(rt.tree.Name, "-", "")
	dirs := []string{"/" + name + ".slice"}
	for _, part := range append([]string{"kubepods"}, parts...) {
		name += "-" + part
		dirs = append(dirs, name+".slice")
	}
	return dirs
}

// slices returns the folders of the pod's cgroup with the systemd driver. That of a Guaranteed pod
// is beside those of the other classes.
func (p *Pod) slices() []string {
	name := "pod" + strings.ReplaceAll(p.UID, "-", "_")
	if p.QoS == workload.Guaranteed {
		return p.rt.slices(name)
	}
	return p.rt.slices(strings.ToLower(p.QoS.String()), name)
}

// containerdPrefix is the prefix of the names of containerd's scopes.
const containerdPrefix = "cri-containerd-"

// nested is the name of the cgroup in its scope into which crun puts a container's processes.
const nested = "container"

// scope returns the name of a container's cgroup in its pod's.
func (rt *Runtime) scope(id string) string {
	prefix := containerdPrefix
	if rt.options.crio() {
		prefix = crioPrefix
	}
	switch {
	case rt.options.Systemd:
		return prefix + id + ".scope"
	case rt.options.crio():
		return prefix + id
	}
	return id
}

// idOf returns the ID of the container or sandbox whose processes are in the cgroup.
func idOf(cgroup string) string {
	name := filepath.Base(cgroup)
	if name == nested {
		name = filepath.Base(filepath.Dir(cgroup))
	}
	name = strings.TrimSuffix(name, ".scope")
	for _, prefix := range []string{crioPrefix, containerdPrefix} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// limitSlice sets the properties that the kubelet sets on a pod's slice, see
// genV2ResourcesProperties of opencontainers/cgroups' systemd/v2.go.
func (p *Pod) limitSlice(r Resources) error {
	quota, memory := "", "infinity"
	if r.CPULimit > 0 {
		quota = fmt.Sprintf("%d.%d%%", r.CPULimit/10, r.CPULimit%10)
	}
	if r.MemoryLimit > 0 {
		memory = fmt.Sprint(r.MemoryLimit)
	}
	return systemctl("set-property", "--runtime", filepath.Base(p.Cgroup),
		fmt.Sprintf("CPUWeight=%d", Weight(shares(r.CPURequest))), "CPUQuota="+quota, "MemoryMax="+memory, "TasksAccounting=true", "IOAccounting=true")
}

// DaemonReload makes the machine's systemd read its units again.
func (rt *Runtime) DaemonReload() error { return systemctl("daemon-reload") }

func systemctl(args ...string) error {
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// SetTasksMax sets a property of the pod's slice, as the kubelet does if a node limits a pod's
// processes.
func (p *Pod) SetTasksMax(n int) error {
	return systemctl("set-property", "--runtime", filepath.Base(p.Cgroup), fmt.Sprintf("TasksMax=%d", n))
}
