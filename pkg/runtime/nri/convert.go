package nri

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/engine/notices"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

func podOf(p *api.PodSandbox) *workload.Pod {
	pod := &workload.Pod{
		ID:             p.GetId(),
		UID:            p.GetUid(),
		Namespace:      nameOf(p.GetNamespace()),
		Name:           nameOf(p.GetName()),
		Labels:         p.GetLabels(),
		Annotations:    p.GetAnnotations(),
		RuntimeHandler: p.GetRuntimeHandler(),
		CgroupParent:   p.GetLinux().GetCgroupParent(),
		Resources:      resourcesOf(p.GetLinux().GetPodResources()),
		IPs:            p.GetIps(),
		HostNetwork:    onHostNetwork(p.GetLinux().GetNamespaces()),
		SandboxPID:     int(p.GetPid()),
		NetworkPath:    networkPath(p.GetLinux().GetNamespaces()),
	}
	if pod.UID == "" {
		pod.UID = pod.ID
	}
	return pod
}

// onHostNetwork reports whether a pod has no network namespace of its own. It has one if the runtime names none
// at all, as it does not know them then.
func onHostNetwork(own []*api.LinuxNamespace) bool {
	return len(own) > 0 && !slices.ContainsFunc(own, func(n *api.LinuxNamespace) bool { return n.GetType() == "network" })
}

// complete takes from a container what the runtime does not tell of its pod: of a pod on the host's network, CRI-O
// names the file of that network as if it were the pod's own, and only its containers name none.
func complete(pod *workload.Pod, c *api.Container) {
	if onHostNetwork(c.GetLinux().GetNamespaces()) {
		pod.HostNetwork, pod.NetworkPath = true, ""
	}
}

// podOfContainer converts the pod of a container.
func podOfContainer(p *api.PodSandbox, c *api.Container) *workload.Pod {
	pod := podOf(p)
	complete(pod, c)
	return pod
}

// networkPath returns the file of a pod's network namespace.
func networkPath(own []*api.LinuxNamespace) string {
	for _, n := range own {
		if n.GetType() == "network" {
			return n.GetPath()
		}
	}
	return ""
}

func containerOf(c *api.Container) workload.Container {
	spec := workload.Container{
		ID:           c.GetId(),
		PodID:        c.GetPodSandboxId(),
		Name:         nameOf(c.GetName()),
		CgroupsPath:  c.GetLinux().GetCgroupsPath(),
		State:        stateOf(c.GetState()),
		PID:          int(c.GetPid()),
		Resources:    resourcesOf(c.GetLinux().GetResources()),
		OOMScoreAdj:  int(c.GetLinux().GetOomScoreAdj().GetValue()),
		CreatedNanos: c.GetCreatedAt(),
		Unified:      c.GetLinux().GetResources().GetUnified(),
		HasCDI:       len(c.GetCDIDevices()) > 0,
	}
	for _, d := range c.GetCDIDevices() {
		// After its own restart the kubelet names a device once more for each time that the claim was
		// prepared (1.36, addDevice of pkg/kubelet/cm/dra/claiminfo.go).
		if id, ok := claim.IDOf(d.GetName()); ok && !slices.Contains(spec.Claims, id) {
			spec.Claims = append(spec.Claims, id)
		}
	}
	for _, d := range c.GetLinux().GetDevices() {
		spec.Devices = append(spec.Devices, workload.DeviceNumber{Block: d.GetType() == "b", Major: d.GetMajor(), Minor: d.GetMinor()})
	}
	return spec
}

// longestName is the length limit of a DNS subdomain, which no Kubernetes name exceeds.
const longestName = 253

// nameOf returns a name that is safe in logs, on terminals and in errors. It doesn't change
// valid Kubernetes names; but the runtime accepts any text from its clients. The replacement
// occurs in no valid name, so no name becomes that of another namespace.
func nameOf(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, name)
	if len(name) > longestName {
		name = strings.ToValidUTF8(name[:longestName], "") + "…"
	}
	return name
}

func stateOf(s api.ContainerState) workload.State {
	switch s {
	case api.ContainerState_CONTAINER_RUNNING, api.ContainerState_CONTAINER_PAUSED:
		return workload.Running
	case api.ContainerState_CONTAINER_STOPPED:
		return workload.Stopped
	default:
		return workload.Created
	}
}

func resourcesOf(r *api.LinuxResources) workload.Resources {
	cpu := r.GetCpu()
	return workload.Resources{
		Shares:      cpu.GetShares().GetValue(),
		Quota:       cpu.GetQuota().GetValue(),
		Period:      cpu.GetPeriod().GetValue(),
		MemoryLimit: r.GetMemory().GetLimit().GetValue(),
		CPUs:        cpu.GetCpus(),
		Mems:        cpu.GetMems(),
	}
}

func adjustmentOf(a node.Adjustment) *api.ContainerAdjustment {
	if (a == node.Adjustment{}) {
		return nil
	}
	out := &api.ContainerAdjustment{}
	write(a.Settings, out)
	if a.OOMScoreAdj.Set {
		out.SetLinuxOomScoreAdj(&a.OOMScoreAdj.Value)
	}
	if a.RDTGroup != "" {
		out.SetLinuxRDTClosID(a.RDTGroup)
	}
	if a.Notices != "" {
		out.AddMount(&api.Mount{Source: a.Notices, Destination: notices.Mounted, Type: "bind", Options: []string{"bind", "ro", "nosuid", "nodev", "noexec", "rprivate"}})
		out.AddEnv(notices.Variable, path.Join(notices.Mounted, notices.File))
	}
	return out
}

// resources has the setters that adjustments and updates have in common.
type resources interface {
	SetLinuxCPUSetCPUs(string)
	SetLinuxCPUSetMems(string)
	SetLinuxCPUShares(uint64)
	SetLinuxCPUQuota(int64)
	SetLinuxCPUPeriod(int64)
	SetLinuxMemoryLimit(int64)
	AddLinuxUnified(key, value string)
}

func write(s node.Settings, to resources) {
	if !s.CPUs.IsEmpty() {
		s.Carried[knobs.CPUs] = knobs.CPUSet(s.CPUs)
	}
	if !s.Mems.IsEmpty() {
		s.Carried[knobs.Mems] = knobs.CPUSet(s.Mems)
	}
	if s.Unlimited {
		s.Carried[knobs.Quota] = knobs.UnlimitedQuota()
	}
	for k := range knobs.Knobs {
		if v := s.Carried[k]; v != nil {
			carry(k, v, to)
		}
	}
}

// carry writes a knob's value into the corresponding field.
func carry(k knobs.Knob, v knobs.Value, to resources) {
	switch k.RuntimeField() {
	case knobs.CPUsField:
		to.SetLinuxCPUSetCPUs(v.String())
	case knobs.MemsField:
		to.SetLinuxCPUSetMems(v.String())
	case knobs.QuotaField:
		q, _ := v.(knobs.CPUQuota)
		if q.Unlimited() {
			to.SetLinuxCPUQuota(-1)
			return
		}
		to.SetLinuxCPUQuota(q.Quota.Microseconds())
		to.SetLinuxCPUPeriod(q.Period.Microseconds())
	case knobs.SharesField:
		shares, _ := v.(knobs.Shares)
		to.SetLinuxCPUShares(uint64(shares))
	case knobs.MemoryLimitField:
		limit, _ := v.(knobs.Bytes)
		to.SetLinuxMemoryLimit(int64(limit))
	case knobs.UnifiedField:
		to.AddLinuxUnified(k.String(), knobs.FormatValue(v))
	case knobs.NoField:
	}
}

func updatesOf(updates []node.Update) []*api.ContainerUpdate {
	if len(updates) == 0 {
		return nil
	}
	out := make([]*api.ContainerUpdate, len(updates))
	for i, u := range updates {
		out[i] = updateOf(u)
	}
	return out
}

func updateOf(u node.Update) *api.ContainerUpdate {
	out := &api.ContainerUpdate{ContainerId: u.ContainerID}
	write(u.Settings, out)
	return out
}

// updater sends the agent's updates to the runtime outside of requests.
type updater struct{ stub stub.Stub }

// Update sends one container's settings and returns when the runtime has applied them. All errors of
// the runtime itself have a status.
func (u updater) Update(update node.Update) error {
	failed, err := u.stub.UpdateContainers([]*api.ContainerUpdate{updateOf(update)})
	if _, answered := grpcstatus.FromError(err); !answered {
		return fmt.Errorf("%w: %w", node.ErrNoAnswer, err)
	}
	if err == nil && len(failed) > 0 {
		err = errors.New("the runtime could not update the container")
	}
	return err
}
