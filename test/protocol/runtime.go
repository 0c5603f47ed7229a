// Package protocol implements the container runtime's side of NRI for tests. It listens on a real
// NRI socket, keeps a record of pods and containers as containerd does, and drives a real plugin
// process. There are no cgroups: a container has what the plugin's adjustments and updates have
// put into its record.
package protocol

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
)

// Runtime is a container runtime with an NRI socket.
type Runtime struct {
	Dir    string // temporary folder, with a path short enough for sockets
	Socket string
	Memory int64 // the node's memory in bytes, for oom_score_adj; 16 GiB if not set
	// Latency is called with the time that a plugin took to answer. Set it before Launch.
	Latency func(plugin, operation string, took time.Duration)

	nri    *adaptation.Adaptation
	synced chan error

	// mu makes the runtime process one request, synchronization or unsolicited update at a time,
	// as containerd does.
	mu         sync.Mutex
	pods       []*api.PodSandbox
	containers []*Container
	serial     int
}

// Container is a container in the runtime's record.
type Container struct {
	*api.Container // the container's resources are its spec's

	Pod   *api.PodSandbox
	Label string // "pod/name", with "#2" for the second of that name
}

// New starts a runtime that ends with the test.
func New(t testing.TB) *Runtime {
	t.Helper()
	quiet()
	// A machine's tree has tens of thousands of files, so it is in memory if possible. The names
	// of t.TempDir are too long for a socket.
	dir, err := os.MkdirTemp("/dev/shm", "nri")
	if err != nil {
		dir, err = os.MkdirTemp("", "nri")
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{Dir: dir, Socket: filepath.Join(dir, "nri.sock"), Memory: 16 << 30, synced: make(chan error, 100)}
	r.nri, err = adaptation.New("containerd", "v2.4.0", r.synchronize, r.unsolicited,
		adaptation.WithSocketPath(r.Socket), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")), adaptation.WithMetrics(latencies{r}))
	if err == nil {
		err = r.nri.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	<-r.synced // waits for the pre-installed plugins, of which there are none
	t.Cleanup(func() {
		r.nri.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

// quiet disables the log of the NRI module, which is global to the process.
var quiet = sync.OnceFunc(func() { nrilog.Set(silence{}) })

type silence struct{}

func (silence) Debugf(context.Context, string, ...any) {}
func (silence) Infof(context.Context, string, ...any)  {}
func (silence) Warnf(context.Context, string, ...any)  {}
func (silence) Errorf(context.Context, string, ...any) {}

// synchronize sends a plugin that has just connected all pods and the containers that have not
// ended, and applies its updates.
func (r *Runtime) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var live []*api.Container
	for _, c := range r.containers {
		if c.State != api.ContainerState_CONTAINER_STOPPED {
			live = append(live, c.Container)
		}
	}
	updates, err := tell(ctx, r.pods, live)
	if err == nil {
		err = r.apply(updates)
	}
	r.synced <- err
	return err
}

// unsolicited applies updates that a plugin sends on its own.
func (r *Runtime) unsolicited(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return nil, r.apply(updates)
}

// awaitSync waits until one more plugin is synchronized.
func (r *Runtime) awaitSync(gone <-chan struct{}) error {
	select {
	case err := <-r.synced:
		// The plugin is active once its synchronization has ended.
		r.nri.BlockPluginSync().Unblock()
		return err
	case <-gone:
		return errors.New("the plugin ended")
	case <-time.After(time.Minute):
		return errors.New("the plugin has not connected within a minute")
	}
}

// apply applies updates to the record. Like containerd it ignores unknown containers.
func (r *Runtime) apply(updates []*api.ContainerUpdate) error {
	for _, u := range updates {
		for _, c := range r.containers {
			if c.Id == u.GetContainerId() {
				if err := c.set(u.GetLinux().GetResources()); err != nil {
					return fmt.Errorf("update of %s: %w", c.Label, err)
				}
			}
		}
	}
	return nil
}

// set changes the resources in the container's record; what r doesn't set stays.
func (c *Container) set(r *api.LinuxResources) error {
	has := c.Linux.Resources
	if cpu := r.GetCpu(); cpu != nil {
		if cpu.Cpus != "" {
			has.Cpu.Cpus = cpu.Cpus
		}
		if cpu.Mems != "" {
			has.Cpu.Mems = cpu.Mems
		}
		if cpu.Shares != nil {
			has.Cpu.Shares = cpu.Shares
		}
		if cpu.Quota != nil {
			has.Cpu.Quota = cpu.Quota
		}
		if cpu.Period != nil {
			has.Cpu.Period = cpu.Period
		}
	}
	if limit := r.GetMemory().GetLimit(); limit != nil {
		has.Memory.Limit = limit
	}
	if len(r.GetUnified()) > 0 {
		return errors.New("unified fails containers on cgroup v1")
	}
	return nil
}

// latencies implements the runtime's metrics of its plugins.
type latencies struct{ *Runtime }

func (l latencies) RecordPluginLatency(plugin, operation string, took time.Duration) {
	if l.Latency != nil {
		l.Latency(plugin, operation, took)
	}
}

func (latencies) RecordPluginInvocation(_, _ string, _ error)                               {}
func (latencies) RecordPluginAdjustments(_, _ string, _ *api.ContainerAdjustment, _, _ int) {}
func (latencies) UpdatePluginCount(int)                                                     {}
