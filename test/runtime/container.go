package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/test/probe/sight"
	"github.com/sluice-dev/sluice/test/probe/wire"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// ContainerSpec describes a container of a pod's manifest.
type ContainerSpec struct {
	Name        string
	Resources   Resources
	Args        []string // arguments of the probe; "first", "sleep" if empty
	Command     []string // what runs in place of the probe
	Mounts      []*cri.Mount
	Annotations map[string]string
	User        int64  // of the processes; 0 is root
	Disk        string // path of a block device of the host that the container may read as /dev/disk
	RuncFails   string // "create", "start" or "update": the verb that fails in a pod with handler Broken
}

// Container is a container that was created.
type Container struct {
	ID     string
	Cgroup string // path below each controller's root

	pod  *Pod
	spec ContainerSpec
	log  string
}

// Create creates a container of the pod. A second one of the same name is the next attempt, as
// after a crash.
func (p *Pod) Create(spec ContainerSpec) (*Container, error) {
	attempt := 0
	for _, c := range p.containers {
		if c.spec.Name == spec.Name {
			attempt++
		}
	}
	memory, err := NodeMemory()
	if err != nil {
		return nil, err
	}
	if len(spec.Args) == 0 && len(spec.Command) == 0 {
		spec.Args = []string{"first", "sleep"}
	}
	labels := p.labels()
	labels["io.kubernetes.container.name"] = spec.Name
	config := &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: spec.Name, Attempt: uint32(attempt)},
		Image:       &cri.ImageSpec{Image: image, UserSpecifiedImage: image}, // CRI-O needs both
		Command:     spec.Command,
		Args:        spec.Args,
		Labels:      labels,
		Annotations: spec.Annotations,
		LogPath:     fmt.Sprintf("%s-%d.log", spec.Name, attempt),
		Envs:        []*cri.KeyValue{{Key: sight.PodVariable, Value: []byte(p.Cgroup)}},
		Mounts:      append([]*cri.Mount{{HostPath: "/sys/fs/cgroup", ContainerPath: sight.Host, Readonly: true}}, spec.Mounts...),
		Linux: &cri.LinuxContainerConfig{
			Resources:       spec.Resources.linux(p.QoS, memory),
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: p.spec.namespaces()},
		},
	}
	if spec.User != 0 {
		config.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: spec.User}
	}
	if spec.Disk != "" {
		config.Devices = []*cri.Device{{HostPath: spec.Disk, ContainerPath: "/dev/disk", Permissions: "r"}}
	}
	if spec.RuncFails != "" {
		config.Envs = append(config.Envs, &cri.KeyValue{Key: "RUNC_FAILS", Value: []byte(spec.RuncFails)})
	}
	ctx, cancel := host.CallContext()
	defer cancel()
	created, err := p.rt.cri.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: p.ID, Config: config, SandboxConfig: p.config})
	if err != nil {
		return nil, fmt.Errorf("creating container %s/%s/%s: %w", p.spec.Namespace, p.spec.Name, spec.Name, err)
	}
	id := created.GetContainerId()
	c := &Container{ID: id, Cgroup: filepath.Join(p.Cgroup, p.rt.scope(id)), pod: p, spec: spec, log: filepath.Join(p.config.GetLogDirectory(), config.GetLogPath())}
	p.containers = append(p.containers, c)
	return c, nil
}

// NodeMemory returns MemTotal in bytes.
func NodeMemory() (int64, error) {
	var info syscall.Sysinfo_t
	err := syscall.Sysinfo(&info)
	return int64(info.Totalram) * int64(info.Unit), err
}

// Start starts the container.
func (c *Container) Start() error {
	ctx, cancel := host.CallContext()
	defer cancel()
	_, err := c.pod.rt.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ID})
	return err
}

// Stop ends the container through the runtime, and waits until the runtime no longer reports it as
// running: see removeContainer.
func (c *Container) Stop() error {
	ctx, cancel := host.CallContext()
	defer cancel()
	if _, err := c.pod.rt.cri.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.ID, Timeout: 10}); err != nil {
		return err
	}
	return host.Poll("the end of "+c.spec.Name, func() error {
		state, err := c.State()
		if err == nil && state == cri.ContainerState_CONTAINER_RUNNING {
			err = errors.New("it is still running")
		}
		return err
	})
}

// Kill kills the container's processes without the runtime, which may not have noticed when Kill
// returns.
func (c *Container) Kill() error { return c.pod.rt.tree.KillAll(c.Cgroup) }

// Signal sends the container's processes a signal without the runtime.
func (c *Container) Signal(signal syscall.Signal) error {
	pids, err := c.pod.rt.tree.PIDs(c.Cgroup)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("%s has no process", c.spec.Name)
	}
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, signal))
	}
	return err
}

// PID returns the number of one of the container's processes.
func (c *Container) PID() (int, error) {
	pids, err := c.pod.rt.tree.PIDs(c.Cgroup)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("%s has no process", c.spec.Name)
	}
	if err != nil {
		return 0, err
	}
	return pids[0], nil
}

// CPUTime returns the CPU time that the container has used.
func (c *Container) CPUTime() (time.Duration, error) { return c.pod.rt.tree.CPUTime(c.Cgroup) }

// Crash kills the container's processes without the runtime, and waits until the runtime has
// noticed.
func (c *Container) Crash() error {
	if err := c.Kill(); err != nil {
		return err
	}
	return c.Await(cri.ContainerState_CONTAINER_EXITED)
}

// Await waits until the runtime reports the state.
func (c *Container) Await(state cri.ContainerState) error {
	return host.Poll(c.spec.Name+" to be "+state.String(), func() error {
		got, err := c.State()
		if err == nil && got != state {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
}

// State returns what the runtime reports.
func (c *Container) State() (cri.ContainerState, error) {
	ctx, cancel := host.CallContext()
	defer cancel()
	response, err := c.pod.rt.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.ID})
	return response.GetStatus().GetState(), err
}

// Recorded returns the resources in the runtime's record; containerd 1.7 has none.
func (c *Container) Recorded() (*cri.LinuxContainerResources, error) {
	ctx, cancel := host.CallContext()
	defer cancel()
	response, err := c.pod.rt.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.ID})
	return response.GetStatus().GetResources().GetLinux(), err
}

// Remove removes the container, stopping it first if it runs.
func (c *Container) Remove() error { return c.pod.rt.removeContainer(c.ID) }

// removeContainer removes a container, stopping it first if it runs. containerd's stop returns as
// soon as the task is gone, which may be before its exit is recorded, and until then a removal
// fails. Like the kubelet, removeContainer tries again.
func (rt *Runtime) removeContainer(id string) error {
	var err error
	_ = host.Poll("the end of container "+id, func() error {
		ctx, cancel := host.CallContext()
		defer cancel()
		_, err = rt.cri.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
		if err != nil && strings.Contains(err.Error(), "container is still running") {
			return err
		}
		return nil
	})
	return err
}

// Update sends the resources through the runtime as they are, as the kubelet's CPU manager does
// with a cpuset alone.
func (c *Container) Update(resources *cri.LinuxContainerResources) error {
	ctx, cancel := host.CallContext()
	defer cancel()
	_, err := c.pod.rt.cri.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: c.ID, Linux: resources})
	return err
}

// Resize does what the kubelet's in-place resize does: it grows the pod's cgroup first, or shrinks
// it last, and then updates the runtime's record of the pod.
func (c *Container) Resize(to Resources) error {
	p := c.pod
	memory, err := NodeMemory()
	if err != nil {
		return err
	}
	before := total(p.spec.Containers)
	after := p.spec
	after.Containers = append([]ContainerSpec(nil), p.spec.Containers...)
	for i := range after.Containers {
		if after.Containers[i].Name == c.spec.Name {
			after.Containers[i].Resources = to
		}
	}
	end := total(after.Containers)
	if err := p.limit(larger(before, end)); err != nil {
		return err
	}
	linux := to.linux(p.QoS, memory)
	if linux.GetCpuQuota() == 0 {
		linux.CpuQuota = -1
	}
	if err := c.Update(linux); err != nil {
		return err
	}
	if err := p.limit(end); err != nil {
		return err
	}
	p.spec, c.spec.Resources = after, to
	ctx, cancel := host.CallContext()
	defer cancel()
	_, err = p.rt.cri.UpdatePodSandboxResources(ctx, &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: p.ID, Resources: sandboxResources(end), Overhead: &cri.LinuxContainerResources{}})
	if status.Code(err) == codes.Unimplemented { // containerd 1.7; the kubelet ignores the error, too
		return nil
	}
	return err
}

// larger returns resources that are as large as both; no limit is the largest.
func larger(a, b Resources) Resources {
	out := Resources{
		CPURequest: max(a.CPURequest, b.CPURequest), CPULimit: max(a.CPULimit, b.CPULimit),
		MemoryRequest: max(a.MemoryRequest, b.MemoryRequest), MemoryLimit: max(a.MemoryLimit, b.MemoryLimit),
	}
	if a.CPULimit == 0 || b.CPULimit == 0 {
		out.CPULimit = 0
	}
	if a.MemoryLimit == 0 || b.MemoryLimit == 0 {
		out.MemoryLimit = 0
	}
	return out
}

// First waits for the container's program to report what it saw right after exec, and returns
// that.
func (c *Container) First() (sight.First, error) {
	var first sight.First
	err := host.Poll("the first line of "+c.spec.Name, func() error {
		text, err := os.ReadFile(c.log)
		if err != nil {
			return err
		}
		line, _, ended := strings.Cut(string(text), "\n")
		if !ended {
			return errors.New("not there yet")
		}
		// CRI's log format is: time, stream, F for a full line, text.
		fields := strings.SplitN(line, " ", 4)
		if len(fields) != 4 {
			return fmt.Errorf("log line %q is not in CRI's format", line)
		}
		return json.Unmarshal([]byte(fields[3]), &first)
	})
	return first, err
}

// Counted returns what the container's probe has counted in wire.Counters: 0 before it has made the
// file.
func (c *Container) Counted() (uint64, error) {
	pids, err := c.pod.rt.tree.PIDs(c.Cgroup)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "root", wire.Counters))
		if !host.Gone(err) {
			return wire.Count(text), err
		}
	}
	return 0, nil
}

// processes returns the cgroup of the container's processes, which is below its own if crun nests
// cgroups.
func (c *Container) processes() string {
	inner := filepath.Join(c.Cgroup, nested)
	if _, err := c.pod.rt.tree.Find(inner, "cgroup.procs"); err == nil {
		return inner
	}
	return c.Cgroup
}

// Nested reports whether the container's processes are in a cgroup below its own.
func (c *Container) Nested() bool { return c.processes() != c.Cgroup }

// CPUs returns the container's cpuset as the kernel applies it.
func (c *Container) CPUs() (cpuset.Set, error) { return c.set("cpuset.cpus") }

// Mems returns the container's memory nodes as the kernel applies them.
func (c *Container) Mems() (cpuset.Set, error) { return c.set("cpuset.mems") }

func (c *Container) set(file string) (cpuset.Set, error) {
	if c.pod.rt.tree.V2() {
		file += ".effective"
	}
	text, err := c.pod.rt.tree.Read(c.processes(), file)
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Parse(text)
}

// File returns the text of a file of the container's own cgroup without surrounding blanks, for
// example "cpu.cfs_quota_us". If that has no limit, File reads the cgroup of its processes,
// because crun sets some limits only there.
func (c *Container) File(name string) (string, error) {
	text, err := c.pod.rt.tree.Read(c.Cgroup, name)
	if err == nil && strings.HasPrefix(text, "max") {
		return c.pod.rt.tree.Read(c.processes(), name)
	}
	return text, err
}

// WriteFile writes a file of the container's cgroup, as another agent on the node would.
func (c *Container) WriteFile(name, value string) error {
	return c.pod.rt.tree.Write(c.Cgroup, name, value)
}

// Allowed returns the union of the CPUs and memory nodes that the scheduler allows the container's
// threads, from their /proc/.../status.
func (c *Container) Allowed() (cpus, mems cpuset.Set, err error) {
	pids, err := c.pod.rt.tree.PIDs(c.Cgroup)
	if err != nil {
		return cpus, mems, err
	}
	if len(pids) == 0 {
		return cpus, mems, fmt.Errorf("%s has no process", c.spec.Name)
	}
	for _, pid := range pids {
		paths, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "status"))
		if err != nil {
			return cpus, mems, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if host.Gone(err) || errors.Is(err, syscall.ESRCH) {
				continue
			}
			if err != nil {
				return cpus, mems, err
			}
			threadCPUs, threadMems, err := sight.Allowed(string(text))
			if err != nil {
				return cpus, mems, err
			}
			cpus, mems = cpuset.Union(cpus, threadCPUs), cpuset.Union(mems, threadMems)
		}
	}
	return cpus, mems, nil
}
