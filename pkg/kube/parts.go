package kube

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
)

// PartsTaker takes the parts that the fleet's policy has for the node, as the plugin does over its
// socket.
type PartsTaker interface {
	SetParts(ctx context.Context, parts []policy.Part) error
}

// Parts follows the parts of the fleet's policy, labelled ConfigMaps, and hands the plugin those for
// the node.
type Parts struct {
	*follower
	name   string // of the node
	plugin PartsTaker

	handed   []policy.Part // what the plugin has taken
	handedAt time.Time     // zero if it has taken none yet

	refused []policy.Part // what the plugin has refused last
	pause   time.Duration // before it gets that again
	failed  time.Time     // when it refused that
}

// Parts returns what follows the parts in a namespace, for the publisher's node.
func (p *Publisher) Parts(namespace string, plugin PartsTaker) *Parts {
	parts := &Parts{name: p.client.node, plugin: plugin}
	parts.follower = p.follow(namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = labels.SelectorFromSet(labels.Set{policy.PartLabel: policy.PartValue}).String()
	}, parts.step)
	return parts
}

// step hands the parts over if the plugin lacks them, or may have forgotten them.
func (p *Parts) step(ctx context.Context) {
	if !p.controller.HasSynced() {
		return
	}
	known := true
	var sources []policy.Source
	for _, c := range p.all() {
		sources = append(sources, policy.Source{Name: c.Name, Data: c.Data})
	}
	now := policy.Parts(p.name, sources, func(selector string) (bool, error) {
		selected, found, err := p.node.selects(selector)
		known = known && found
		return selected, err
	})
	if !known || slices.Equal(now, p.handed) && time.Since(p.handedAt) < handRepeat {
		return
	}
	again := slices.Equal(now, p.refused)
	if again && time.Since(p.failed) < p.pause {
		return
	}
	if err := p.plugin.SetParts(ctx, now); err != nil {
		if !again {
			p.pause = 0
		}
		p.pause = min(max(2*p.pause, handPause), handRepeat)
		p.handedAt, p.refused, p.failed = time.Time{}, now, time.Now()
		p.tell(ctx, err.Error(), "The fleet's policy does not reach the plugin, which keeps what it has")
		return
	}
	p.handed, p.handedAt, p.told, p.pause = now, time.Now(), "", 0
}
