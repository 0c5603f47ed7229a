package daemon

import (
	"context"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// addEvictors sets what a configuration uses to evict pods. It warns of a setup that can't work
// now, and not only when a pod has to be evicted.
func (s *service) addEvictors(c *config.Config, o *agent.Options, log logrus.FieldLogger) {
	o.Evictor, o.LastResort, o.EvictorProblem, o.APIPods = evict.Report{}, nil, nil, nil
	by := &c.Control.Eviction
	missing := Evicts(c, s.HostRoot)
	if missing != nil {
		log.Warn(unevictable(c, missing))
	}
	cri := criEvictor{by.Socket, s.HostRoot}
	switch by.By {
	case control.EvictCRI:
		o.Evictor = cri
	case control.EvictKubernetes:
		o.Evictor, o.EvictorProblem, o.APIPods = evict.Kubernetes{Orders: s.link}, s.unlinked, s.link.Pods
		if missing == nil {
			o.LastResort = cri
		}
		if s.KubeSocket == "" {
			log.Warn("control.eviction is by: kubernetes, which does not work here: " + s.unlinked())
		}
	case control.EvictReport:
	}
}

// unlinked tells why no order reaches sluice-kube; "" if orders do.
func (s *service) unlinked() string {
	switch {
	case s.KubeSocket == "":
		return "sluice run has no --kube-socket, through which sluice-kube takes evictions"
	case !s.link.IsConnected():
		return evictorder.ErrNobody.Error() + " at " + s.KubeSocket
	}
	return ""
}

// unevictable says what does not work without the runtime's CRI socket.
func unevictable(c *config.Config, err error) string {
	if c.Control.Eviction.By == control.EvictKubernetes {
		return "control.eviction is by: kubernetes, without a last resort at critical memory: " + err.Error()
	}
	return "control.eviction is by: cri, which does not work on this node: " + err.Error()
}

// criEvictor stops pods through the runtime. It searches for the socket on each eviction,
// because the runtime may start after the plugin.
type criEvictor struct{ socket, root string }

func (e criEvictor) Evict(ctx context.Context, pod evict.Pod) error {
	socket, err := evict.Socket(e.root, e.socket)
	if err != nil {
		return err
	}
	return evict.CRI{Socket: socket}.Evict(ctx, pod)
}

// Evicts returns an error if the configuration asks for evictions through the runtime, always or
// as the last resort, that can't work on this node.
func Evicts(c *config.Config, root string) error {
	by := &c.Control.Eviction
	if by.By == control.EvictReport || by.Mode == control.Off || c.LoopMode() == control.Off {
		return nil
	}
	_, err := evict.Socket(root, by.Socket)
	return err
}
