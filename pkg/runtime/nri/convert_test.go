package nri

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestPod(t *testing.T) {
	t.Parallel()
	got := podOf(&api.PodSandbox{
		Ips: []string{"192.0.2.1"}, Pid: 9,
		Id: "p", Uid: "u", Namespace: "ns", Name: "n", RuntimeHandler: "kata",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/kubepods/podu",
			Namespaces:   []*api.LinuxNamespace{{Type: "ipc"}, {Type: "network", Path: "/run/netns/a"}},
			PodResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(int64(200000)), Period: api.UInt64(uint64(100000))}},
		},
	})
	want := &workload.Pod{
		ID: "p", UID: "u", Namespace: "ns", Name: "n", RuntimeHandler: "kata",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		CgroupParent: "/kubepods/podu", Resources: workload.Resources{Quota: 200000, Period: 100000},
		IPs: []string{"192.0.2.1"}, SandboxPID: 9, NetworkPath: "/run/netns/a",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !podOf(&api.PodSandbox{Annotations: map[string]string{"kubernetes.io/config.source": "file"}}).Static() {
		t.Error("a static pod is taken for one of the API server")
	}
	if got := podOf(&api.PodSandbox{Id: "p"}); got.UID != "p" || got.HostNetwork {
		t.Errorf("a pod without UID, whose namespaces are unknown, is %+v", got)
	}
	if got := podOf(&api.PodSandbox{Id: "p", Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "ipc"}, {Type: "mount"}}}}); !got.HostNetwork {
		t.Errorf("a pod without a network namespace is %+v", got)
	}
}

// TestPodOfContainer finds a pod's network in the messages of both runtimes.
func TestPodOfContainer(t *testing.T) {
	t.Parallel()
	namespaces := func(network ...string) []*api.LinuxNamespace {
		all := []*api.LinuxNamespace{{Type: "pid"}, {Type: "ipc", Path: "/var/run/ipcns/5c0334ba"}, {Type: "mount"}}
		for _, path := range network {
			all = append(all, &api.LinuxNamespace{Type: "network", Path: path})
		}
		return all
	}
	const file = "/var/run/netns/5c0334ba"
	for name, c := range map[string]struct {
		pid            uint32
		pod, container []*api.LinuxNamespace
		path           string
		host           bool
	}{
		"CRI-O, own":                    {0, namespaces(file), namespaces(file), file, false},
		"CRI-O, the host's":             {0, namespaces(file), namespaces(), "", true}, // the file is the host's network
		"CRI-O with infra, own":         {9, namespaces(file), namespaces(file), file, false},
		"CRI-O with infra, the host's":  {9, namespaces(file), namespaces(), "", true},
		"containerd, own":               {9, namespaces(file), namespaces("/proc/9/ns/net"), file, false},
		"containerd, the host's":        {9, namespaces(), namespaces("/proc/9/ns/net"), "", true},
		"a container that is not known": {9, namespaces(file), nil, file, false},
	} {
		pod := &api.PodSandbox{Pid: c.pid, Linux: &api.LinuxPodSandbox{Namespaces: c.pod}}
		container := &api.Container{Linux: &api.LinuxContainer{Namespaces: c.container}}
		if got := podOfContainer(pod, container); got.NetworkPath != c.path || got.HostNetwork != c.host || got.SandboxPID != int(c.pid) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestContainer(t *testing.T) {
	t.Parallel()
	got := containerOf(&api.Container{
		Id: "c", PodSandboxId: "p", Name: "n", State: api.ContainerState_CONTAINER_RUNNING, Pid: 7, CreatedAt: 9,
		CDIDevices: []*api.CDIDevice{ // of a kubelet that was restarted
			{Name: "gpu.example.com/gpu=0"}, {Name: "cpus.sluice.dev/claim=5c1f-0"}, {Name: "cpus.sluice.dev/claim=5c1f-0"},
		},
		Linux: &api.LinuxContainer{
			CgroupsPath: "/kubepods/podu/c",
			OomScoreAdj: api.Int(-997),
			Devices:     []*api.LinuxDevice{{Type: "c", Major: 226, Minor: 1}, {Type: "b", Major: 8, Minor: 0}},
			Resources: &api.LinuxResources{
				Cpu: &api.LinuxCPU{
					Shares: api.UInt64(uint64(512)), Quota: api.Int64(int64(-1)), Period: api.UInt64(uint64(100000)), Cpus: "0-3", Mems: "0",
				},
				Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 30))},
			},
		},
	})
	want := workload.Container{
		ID: "c", PodID: "p", Name: "n", CgroupsPath: "/kubepods/podu/c", State: workload.Running, PID: 7,
		Resources:    workload.Resources{Shares: 512, Quota: -1, Period: 100000, MemoryLimit: 1 << 30, CPUs: "0-3", Mems: "0"},
		OOMScoreAdj:  -997,
		Devices:      []workload.DeviceNumber{{Major: 226, Minor: 1}, {Block: true, Major: 8}},
		HasCDI:       true,
		Claims:       []string{"5c1f-0"},
		CreatedNanos: 9,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := containerOf(&api.Container{Id: "c"}), (workload.Container{ID: "c"}); !reflect.DeepEqual(got, want) {
		t.Errorf("a bare container is %+v", got)
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	for from, want := range map[api.ContainerState]workload.State{
		api.ContainerState_CONTAINER_UNKNOWN: workload.Created,
		api.ContainerState_CONTAINER_CREATED: workload.Created,
		api.ContainerState_CONTAINER_PAUSED:  workload.Running,
		api.ContainerState_CONTAINER_RUNNING: workload.Running,
		api.ContainerState_CONTAINER_STOPPED: workload.Stopped,
	} {
		if got := stateOf(from); got != want {
			t.Errorf("%s is %v, want %v", from, got, want)
		}
	}
}

// TestSettings checks that messages contain only what is set: a runtime would ignore an empty
// value, and another plugin's value would conflict with it.
func TestSettings(t *testing.T) {
	t.Parallel()
	cpus, mems := cpuset.Of(0, 1, 2, 5), cpuset.Of(1)
	limit := knobs.CPUQuota{Quota: 150 * time.Millisecond, Period: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		settings node.Settings
		want     *api.LinuxResources
	}{
		"CPUs":  {node.Settings{CPUs: cpus}, &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-2,5"}}},
		"nodes": {node.Settings{Mems: mems}, &api.LinuxResources{Cpu: &api.LinuxCPU{Mems: "1"}}},
		"all": {
			node.Settings{CPUs: cpus, Mems: mems, Unlimited: true},
			&api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-2,5", Mems: "1", Quota: api.Int64(int64(-1))}},
		},
		"batch": {
			node.Settings{Carried: knobs.Values{knobs.Weight: knobs.Shares(1536), knobs.Quota: limit, knobs.MemoryMax: knobs.Bytes(1 << 20)}},
			&api.LinuxResources{
				Cpu:    &api.LinuxCPU{Shares: api.UInt64(uint64(1536)), Quota: api.Int64(int64(150000)), Period: api.UInt64(uint64(100000))},
				Memory: &api.LinuxMemory{Limit: api.Int64(int64(1 << 20))},
			},
		},
		"memory": {
			node.Settings{Carried: knobs.Values{knobs.MemoryMin: knobs.Bytes(1 << 20), knobs.MemoryLow: knobs.Bytes(2 << 20), knobs.MemoryHigh: knobs.Bytes(3 << 20)}},
			&api.LinuxResources{Unified: map[string]string{"memory.min": "1048576", "memory.low": "2097152", "memory.high": "3145728"}},
		},
	} {
		for kind, got := range map[string]*api.LinuxResources{
			"adjustment": adjustmentOf(node.Adjustment{Settings: c.settings}).GetLinux().GetResources(),
			"update":     updateOf(node.Update{ContainerID: "c", Settings: c.settings}).GetLinux().GetResources(),
		} {
			if !proto.Equal(got, c.want) {
				t.Errorf("%s of %s: %v, want %v", kind, name, got, c.want)
			}
		}
	}
	score := node.Adjustment{OOMScoreAdj: workload.Some(0)}
	if got := adjustmentOf(score).GetLinux().GetOomScoreAdj(); got == nil || got.GetValue() != 0 {
		t.Errorf("an OOM score of 0 is %v", got)
	}
	told := adjustmentOf(node.Adjustment{Notices: "/run/sluice/notices/uid"})
	if m := told.GetMounts(); len(m) != 1 || m[0].Source != "/run/sluice/notices/uid" || m[0].Destination != "/run/sluice-notice" || !slices.Contains(m[0].Options, "ro") {
		t.Errorf("mounts %v", m)
	}
	if env := told.GetEnv(); len(env) != 1 || env[0].Key+"="+env[0].Value != "SLUICE_NOTICE=/run/sluice-notice/notice.json" {
		t.Errorf("environment %v", env)
	}
	if got := adjustmentOf(node.Adjustment{}); got != nil {
		t.Errorf("nothing to set, and still %v", got)
	}
	if got := updatesOf(nil); got != nil {
		t.Errorf("nobody to update, and still %v", got)
	}
}

// Every knob with a field in the runtime's messages is written to it, and no other knob is.
func TestKnobsInMessages(t *testing.T) {
	t.Parallel()
	for k := range knobs.Knobs {
		value := cgroupfs.Describe(k).Default
		if k.OriginalIsAll() {
			value = knobs.CPUSet(cpuset.Of(1)) // the default is the empty set, which is left out
		}
		var set node.Settings
		set.Carried[k] = value
		message := updateOf(node.Update{ContainerID: "c", Settings: set}).GetLinux().GetResources()
		if sent := !proto.Equal(message, &api.LinuxResources{}) && message != nil; sent != (k.RuntimeField() != knobs.NoField) {
			t.Errorf("%s %s is in the message: %t", k, value, sent)
		}
		if _, unified := message.GetUnified()[k.String()]; unified != (k.RuntimeField() == knobs.UnifiedField) {
			t.Errorf("%s %s is unified in the message: %t", k, value, unified)
		}
	}
}

// Names that Kubernetes accepts stay as they are. All others become printable and bounded, and
// equal no other valid name.
func FuzzName(f *testing.F) {
	for _, name := range []string{"kube-system", "web-0.db_1", "", "kube-system\n", "\x1b]0;x\a", "\u202ea", "\xff", "\u009b2J", strings.Repeat("é", 300)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := nameOf(name)
		valid := len(name) <= longestName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == ""
		switch {
		case valid && got != name:
			t.Errorf("%q becomes %q", name, got)
		case got != name && strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._") == "":
			t.Errorf("%q becomes the valid name %q", name, got)
		case strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }), len(got) > longestName+len("…"):
			t.Errorf("%q becomes %q", name, got)
		}
		pod, c := podOf(&api.PodSandbox{Namespace: name, Name: name}), containerOf(&api.Container{Name: name})
		if ref := workload.Ref(pod, &c); ref != got+"/"+got+"/"+got {
			t.Errorf("%q is known as %q", name, ref)
		}
	})
}

// answering is the stub of a connection on which each update has that result.
type answering struct {
	stub.Stub
	failed []*api.ContainerUpdate
	err    error
}

func (a answering) UpdateContainers([]*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return a.failed, a.err
}

// TestAnswers distinguishes a runtime that refuses an update from one that may still make it.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answering
		fails, unanswered bool
	}{
		"made":          {answering{}, false, false},
		"not made":      {answering{failed: []*api.ContainerUpdate{{}}}, true, false},
		"refused":       {answering{err: grpcstatus.Error(codes.Unknown, "no")}, true, false},
		"no connection": {answering{err: ttrpc.ErrClosed}, true, true},
	} {
		if err := (updater{c.answering}).Update(node.Update{}); (err != nil) != c.fails || errors.Is(err, node.ErrNoAnswer) != c.unanswered {
			t.Errorf("%s: %v", name, err)
		}
	}
}
