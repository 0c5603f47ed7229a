package kube

import (
	"context"
	"time"
)

// KubeletTaker takes the version of the node's kubelet, as the plugin does over its socket.
type KubeletTaker interface {
	SetKubelet(ctx context.Context, version string) error
}

// TellKubelet hands the plugin the kubelet's version, and again if it may have forgotten it, until the
// context ends.
func (p *Publisher) TellKubelet(ctx context.Context, plugin KubeletTaker) {
	handed, told := "", ""
	var handedAt time.Time
	for ; ctx.Err() == nil; pause(ctx, handPause) {
		version := p.node.kubeletVersion()
		if version == "" || version == handed && time.Since(handedAt) < handRepeat {
			continue
		}
		if err := plugin.SetKubelet(ctx, version); err != nil {
			handed = ""
			if err.Error() != told && ctx.Err() == nil {
				told = err.Error()
				p.log.WithField("problem", told).Warn("The kubelet's version does not reach the plugin, which keeps what it has")
			}
			continue
		}
		handed, handedAt, told = version, time.Now(), ""
	}
}
