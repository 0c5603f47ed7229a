package runtime

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/host"
)

// PodSpec is a pod's manifest. Its QoS class and its cgroup's limits follow from the containers,
// as in the kubelet.
type PodSpec struct {
	Name        string
	Namespace   string // "" for "default"
	Annotations map[string]string
	Labels      map[string]string
	Handler     string // runtime handler; "" for runc, Broken for one that fails if a container says so
	Slices      bool   // the pod's cgroup is named as with the systemd driver
	OwnNetwork  bool   // the pod has a network namespace of its own rather than the host's; needs Options.PodNetwork
	Containers  []ContainerSpec
}

// Pod is a pod that runs.
type Pod struct {
	ID     string // ID of the sandbox
	UID    string
	QoS    workload.QoS
	Cgroup string // path below each controller's root
	IP     string // on its own network; "" on the host's

	rt         *Runtime
	spec       PodSpec
	config     *cri.PodSandboxConfig
	containers []*Container
}

// Run runs a pod and starts all its containers. If one doesn't start, the pod is removed.
func (rt *Runtime) Run(spec PodSpec) (*Pod, error) {
	pod, err := rt.RunPod(spec)
	if err != nil {
		return nil, err
	}
	for _, spec := range spec.Containers {
		container, err := pod.Create(spec)
		if err == nil {
			err = container.Start()
		}
		if err != nil {
			return nil, errors.Join(err, pod.Remove())
		}
	}
	return pod, nil
}

// RunPod makes the pod's cgroup and runs its sandbox without containers.
func (rt *Runtime) RunPod(spec PodSpec) (*Pod, error) {
	if spec.Namespace == "" {
		spec.Namespace = "default"
	}
	if spec.OwnNetwork && !rt.options.PodNetwork {
		return nil, fmt.Errorf("pod %s/%s has OwnNetwork, for which the runtime needs Options.PodNetwork", spec.Namespace, spec.Name)
	}
	pod := &Pod{UID: uuid(), QoS: qosOf(spec.Containers), rt: rt, spec: spec}
	if err := pod.createCgroup(); err != nil {
		return nil, err
	}
	parent := pod.Cgroup
	if rt.options.Systemd {
		parent = filepath.Base(parent)
	}
	resources := total(spec.Containers)
	if err := pod.limit(resources); err != nil {
		return nil, err
	}
	labels := pod.labels()
	maps.Copy(labels, spec.Labels)
	pod.config = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: spec.Name, Namespace: spec.Namespace, Uid: pod.UID},
		Labels:       labels,
		Annotations:  spec.Annotations,
		LogDirectory: filepath.Join(rt.Dir, "logs", pod.UID),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    parent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: spec.namespaces()},
			Resources:       sandboxResources(resources),
			Overhead:        &cri.LinuxContainerResources{},
		},
	}
	if err := os.MkdirAll(pod.config.GetLogDirectory(), 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := host.CallContext()
	defer cancel()
	sandbox, err := rt.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod.config, RuntimeHandler: spec.Handler})
	if err != nil {
		return nil, fmt.Errorf("running pod %s/%s: %w", spec.Namespace, spec.Name, err)
	}
	pod.ID = sandbox.GetPodSandboxId()
	if spec.OwnNetwork {
		response, err := rt.cri.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: pod.ID})
		if err != nil {
			return nil, errors.Join(err, pod.Remove())
		}
		pod.IP = response.GetStatus().GetNetwork().GetIp()
	}
	return pod, nil
}

// createCgroup makes the pod's cgroup, without limits.
func (p *Pod) createCgroup() error {
	parent := p.rt.kubepods()
	if p.QoS != workload.Guaranteed {
		parent = p.rt.class(strings.ToLower(p.QoS.String()))
	}
	p.Cgroup = filepath.Join(parent, "pod"+p.UID)
	if p.spec.Slices || p.rt.options.Systemd {
		p.Cgroup = filepath.Join(p.slices()...)
	}
	if p.rt.options.Systemd {
		return systemctl("start", filepath.Base(p.Cgroup))
	}
	return p.rt.tree.Create(p.Cgroup)
}

// uuid returns a random UUID in the API server's notation.
func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, according to its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// namespaces returns the kubelet's defaults, except that the network is the host's, which needs no
// CNI, unless the pod has one of its own.
func (s PodSpec) namespaces() *cri.NamespaceOption {
	option := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER}
	if s.OwnNetwork {
		option.Network = cri.NamespaceMode_POD
	}
	return option
}

func (p *Pod) labels() map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name":      p.spec.Name,
		"io.kubernetes.pod.namespace": p.spec.Namespace,
		"io.kubernetes.pod.uid":       p.UID,
	}
}

// sandboxResources does what the kubelet's calculateSandboxResources does.
func sandboxResources(r Resources) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{
		CpuShares:          shares(r.CPURequest),
		CpuQuota:           quota(r.CPULimit),
		CpuPeriod:          period,
		MemoryLimitInBytes: r.MemoryLimit,
	}
}

// limit writes the pod's own cgroup as the kubelet does. An absent limit is unlimited.
func (p *Pod) limit(r Resources) error {
	if p.rt.options.Systemd {
		return p.limitSlice(r)
	}
	limit := func(value int64, unlimited string) string {
		if value == 0 {
			return unlimited
		}
		return strconv.FormatInt(value, 10)
	}
	write := func(file, value string) error { return p.rt.tree.Write(p.Cgroup, file, value) }
	share := shares(r.CPURequest)
	if p.rt.tree.V2() {
		return errors.Join(
			write("cpu.weight", strconv.FormatInt(Weight(share), 10)),
			write("cpu.max", fmt.Sprintf("%s %d", limit(quota(r.CPULimit), "max"), period)),
			write("memory.max", limit(r.MemoryLimit, "max")),
		)
	}
	return errors.Join(
		write("cpu.shares", strconv.FormatInt(share, 10)),
		write("cpu.cfs_period_us", strconv.Itoa(period)),
		write("cpu.cfs_quota_us", limit(quota(r.CPULimit), "-1")),
		write("memory.limit_in_bytes", limit(r.MemoryLimit, "-1")),
	)
}

// Container returns the newest container of that name, or nil if there is none.
func (p *Pod) Container(name string) *Container {
	for _, c := range slices.Backward(p.containers) {
		if c.spec.Name == name {
			return c
		}
	}
	return nil
}

// File returns the text of a file of the pod's own cgroup without surrounding blanks, for example
// "cpu.cfs_quota_us".
func (p *Pod) File(name string) (string, error) { return p.rt.tree.Read(p.Cgroup, name) }

// ClassFile returns the text of a file of the cgroup above the pod's without surrounding blanks.
func (p *Pod) ClassFile(name string) (string, error) {
	return p.rt.tree.Read(filepath.Dir(p.Cgroup), name)
}

// WriteFile writes a file of the pod's own cgroup, as another agent on the node would.
func (p *Pod) WriteFile(name, value string) error { return p.rt.tree.Write(p.Cgroup, name, value) }

// Stop stops the sandbox and with it all containers.
func (p *Pod) Stop() error {
	ctx, cancel := host.CallContext()
	defer cancel()
	_, err := p.rt.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.ID})
	return err
}

// Remove stops and removes the pod with its containers and its cgroup.
func (p *Pod) Remove() error {
	if err := p.rt.removePod(p.ID); err != nil {
		return err
	}
	if p.rt.options.Systemd {
		return systemctl("stop", filepath.Base(p.Cgroup))
	}
	if p.spec.Slices {
		return p.rt.tree.Remove(p.slices()[0])
	}
	return p.rt.tree.Remove(p.Cgroup)
}

// removePod removes the containers before their sandbox, as the kubelet's garbage collector does.
// If RemovePodSandbox removed them, containerd 2.4.2 would deadlock when an NRI plugin connects
// meanwhile: both calls take the same lock for reading, and the connection waits for it in
// between.
func (rt *Runtime) removePod(id string) error {
	ctx, cancel := host.CallContext()
	defer cancel()
	if _, err := rt.cri.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	list, err := rt.cri.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return err
	}
	for _, c := range list.GetContainers() {
		if err := rt.removeContainer(c.GetId()); err != nil {
			return err
		}
	}
	_, err = rt.cri.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}
