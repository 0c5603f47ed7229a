package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/status"
)

// SwitchTaker takes what the fleet's switch says for the node, as the plugin does over its socket.
type SwitchTaker interface {
	SetSwitch(ctx context.Context, s status.Switch) error
}

// problemMost bounds in bytes what the plugin gets to know of a mistake in the ConfigMap.
const problemMost = 1 << 10

// Switch follows the fleet's switch, a ConfigMap, and hands the plugin what it says for the node.
type Switch struct {
	*follower
	plugin SwitchTaker

	handed   *status.Switch // what the plugin has taken; nil if it has taken none yet
	handedAt time.Time
}

// Switch returns what follows the fleet's switch in a namespace, for the publisher's node.
func (p *Publisher) Switch(namespace string, plugin SwitchTaker) *Switch {
	s := &Switch{plugin: plugin}
	s.follower = p.follow(namespace, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", policy.SwitchName).String()
	}, s.step)
	return s
}

// step hands the switch over if the plugin lacks it, or may have forgotten it.
func (s *Switch) step(ctx context.Context) {
	now, known := s.says()
	if !known || s.handed != nil && *s.handed == now && time.Since(s.handedAt) < handRepeat {
		return
	}
	if err := s.plugin.SetSwitch(ctx, now); err != nil {
		s.handed = nil
		s.tell(ctx, err.Error(), "The fleet's switch does not reach the plugin, which keeps what it has")
		return
	}
	if now.Problem != "" {
		s.tell(ctx, now.Problem, "The fleet's switch stays as it was")
	} else {
		s.told = ""
	}
	s.handed, s.handedAt = &now, time.Now()
}

// says returns what the fleet's switch says for the node. It is not known before the API server has
// answered, nor, if it depends on the node's labels, while the node object is not known.
func (s *Switch) says() (says status.Switch, known bool) {
	if !s.controller.HasSynced() {
		return says, false
	}
	all := s.all()
	if len(all) == 0 {
		return says, true
	}
	known = true
	says, err := policy.Switch(all[0].Data, func(selector string) (bool, error) {
		selected, found, err := s.node.selects(selector)
		known = found
		return selected, err
	})
	if err != nil {
		says = status.Switch{Problem: clip(err.Error(), problemMost)}
	}
	return says, known
}
