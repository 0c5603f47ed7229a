// Package standin runs sluice-kube for a test beside a plugin that the test makes up.
package standin

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Plugin serves a made-up status, which a test changes, and hands out the test's orders to evict pods.
type Plugin struct {
	Socket string
	Link   *kubelink.Link
	Fleet  *batchswitch.Fleet

	stop   func()
	mu     sync.Mutex
	parts  []policy.Part
	change func(*status.Status)
}

// Start serves a plugin until the end of the test. It offers nothing until Offer.
func Start(t testing.TB) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "standin") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fleet, err := batchswitch.OpenFleet(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{Fleet: fleet, Socket: filepath.Join(dir, "kube.sock"), Link: kubelink.New(), change: func(*status.Status) {}}
	p.Serve(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// Serve serves the plugin again after Close.
func (p *Plugin) Serve(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	log := logrus.New()
	log.SetLevel(logrus.ErrorLevel)
	go func() {
		served <- kubesocket.Serve(ctx, kubesocket.Options{Path: p.Socket, Fleet: p.Fleet, SetParts: p.setParts, SetKubelet: func(string) error { return nil }, Log: log}, p, p.Link)
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func (p *Plugin) setParts(parts []policy.Part) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts = parts
	return nil
}

// Parts are those that the fleet's policy has for the node.
func (p *Plugin) Parts() []policy.Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts
}

// Close ends the plugin.
func (p *Plugin) Close() { p.stop() }

// Status returns the node as it was made, at this time.
func (p *Plugin) Status() (*status.Status, error) {
	s := statustest.Selling(time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	fleet := p.Fleet.Switch()
	s.Loop.Batch.FleetSwitch = &fleet
	if fleet.State == control.SwitchOff {
		s.Loop.Batch.State = status.BatchClosed
	}
	p.change(s)
	return s, nil
}

// Machine is no part of what is sold.
func (p *Plugin) Machine() (*topology.Machine, error) { return &topology.Machine{}, nil }

// Set changes what the status says from now on.
func (p *Plugin) Set(change func(*status.Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// Offer lets the node offer this much CPU, in thousandths, and as many MiB of memory.
func (p *Plugin) Offer(milli int64) { p.Set(func(s *status.Status) { Offers(s, milli) }) }

// SwitchOff closes the node by the switch of batch work. The offer is that of Offer.
func (p *Plugin) SwitchOff(milli int64) {
	p.Set(func(s *status.Status) {
		Offers(s, milli)
		s.Loop.Batch.State, s.Loop.Batch.Switch.State = status.BatchClosed, control.SwitchOff
	})
}

// Offers changes a status as Offer does.
func Offers(s *status.Status, milli int64) {
	s.Loop.Offer = control.Offer{
		Known: true, ShortTerm: control.Amount{CPU: workload.MilliCPU(milli), MemoryBytes: milli << 20},
		LongTerm: control.Amount{CPU: workload.MilliCPU(milli / 2), MemoryBytes: milli << 19},
	}
}

// CoolDown closes the node for a cool-down after an eviction. The offer is that of Offer.
func (p *Plugin) CoolDown(milli int64) {
	p.Set(func(s *status.Status) {
		Offers(s, milli)
		s.Loop.Evictions.CoolDownEndsAt, s.Loop.Evictions.CoolDownWhy = s.Time.Add(time.Hour), "a pod was evicted"
	})
}

// Evict orders the eviction of a pod as the control loop does, and waits for the answer until the context ends. The
// order begins a cool-down of that length, none if it is 0.
func (p *Plugin) Evict(ctx context.Context, pod *corev1.Pod, coolDown time.Duration) error {
	order := evict.Pod{UID: string(pod.UID), Ref: pod.Namespace + "/" + pod.Name, Why: "memory is short", DecidedAt: time.Now()}
	if coolDown > 0 {
		order.CoolDown = order.DecidedAt.Add(coolDown)
	}
	return evict.Kubernetes{Orders: p.Link}.Evict(ctx, order)
}
