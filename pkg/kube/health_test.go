package kube

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	cluster "github.com/sluice-dev/sluice/pkg/cluster/slices"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// healthStream is the kubelet's side.
type healthStream struct {
	grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]
	context func() context.Context

	mu   sync.Mutex
	sent []string
}

func (s *healthStream) Context() context.Context { return s.context() }

func (s *healthStream) Send(r *health.NodeWatchResourcesResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	for _, d := range r.Devices {
		text += fmt.Sprintf("%s/%s %s %q ", d.Device.PoolName, d.Device.DeviceName, d.Health, d.Message)
	}
	s.sent = append(s.sent, text)
	return nil
}

func (s *healthStream) take() (sent []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, s.sent = s.sent, nil
	return sent
}

// The kubelet hears of a change at once, and of what stays every ten seconds; nothing while the plugin is away.
func TestHealthIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &Driver{client: &Client{node: "n1"}}
		ctx, stop := context.WithCancel(t.Context())
		stream := &healthStream{context: func() context.Context { return ctx }}
		ended := make(chan error)
		go func() { ended <- d.NodeWatchResources(nil, stream) }()
		after := func(wait time.Duration, times int, want string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			sent := stream.take()
			if len(sent) != times || times > 0 && sent[times-1] != want {
				t.Errorf("after %v it was told %q, want %d times %q", wait, sent, times, want)
			}
		}
		device := cluster.Health{Domain: claim.Domain{Kind: claim.NUMA, Number: 1}}
		const healthy, unhealthy = `n1/numa1 HEALTHY "" `, `n1/numa1 UNHEALTHY "a claim lacks CPUs" `
		after(15*time.Second+time.Millisecond, 0, "")
		d.health.set([]cluster.Health{device}, true)
		after(time.Second, 1, healthy)
		after(9*time.Second, 0, "")
		after(time.Second, 1, healthy)
		device.Problem = "a claim lacks CPUs"
		d.health.set([]cluster.Health{device}, true)
		after(time.Second, 1, unhealthy)
		after(40*time.Second, 4, unhealthy)
		d.health.set(nil, false)
		after(time.Minute, 0, "")
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
