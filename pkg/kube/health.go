package kube

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	cluster "github.com/sluice-dev/sluice/pkg/cluster/slices"
)

// healthRepeat is the time until the kubelet hears of the same health again. It takes a device for unknown
// after 30 s without (DefaultHealthTimeout in pkg/kubelet/cm/dra of Kubernetes 1.36).
const healthRepeat = 10 * time.Second

// maxHealthMessage is what the kubelet keeps of a message, in bytes.
const maxHealthMessage = 1 << 10

// deviceHealth is the health of the devices as the plugin reports it.
type deviceHealth struct {
	mu    sync.Mutex
	known bool // whether the plugin reports it now
	now   []cluster.Health
}

func (h *deviceHealth) set(now []cluster.Health, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.known = now, known
}

func (h *deviceHealth) get() ([]cluster.Health, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now, h.known
}

// NodeWatchResources tells the kubelet the health of the devices, which shows it in the pods' status: at once
// after a change, and again every ten seconds. While the plugin is away it says nothing, so that the kubelet
// takes them for unknown.
func (d *Driver) NodeWatchResources(_ *health.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var told []cluster.Health
	var toldAt time.Time
	for {
		now, known := d.health.get()
		if at := time.Now(); known && (at.Sub(toldAt) >= healthRepeat || !slices.Equal(now, told)) {
			if err := stream.Send(&health.NodeWatchResourcesResponse{Devices: d.healthOf(now, at)}); err != nil {
				return err
			}
			told, toldAt = now, at
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

func (d *Driver) healthOf(all []cluster.Health, now time.Time) (devices []*health.DeviceHealth) {
	for _, h := range all {
		one := &health.DeviceHealth{
			Device: &health.DeviceIdentifier{PoolName: d.client.node, DeviceName: h.String()}, Health: health.HealthStatus_HEALTHY, LastUpdatedTime: now.Unix(),
		}
		if h.Problem != "" {
			one.Health, one.Message = health.HealthStatus_UNHEALTHY, clip(h.Problem, maxHealthMessage)
		}
		devices = append(devices, one)
	}
	return devices
}
