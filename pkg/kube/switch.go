package kube

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/status"
)

// SwitchTaker takes what the fleet's switch says for the node, as the plugin does over its socket.
type SwitchTaker interface {
	SetSwitch(ctx context.Context, s status.Switch) error
}

// These are the times of handing the fleet's switch over.
const (
	switchPause  = time.Second      // between two attempts, and between two looks at the node's labels
	switchRepeat = 30 * time.Second // until the plugin gets it again: its state folder may be new
)

// problemMost bounds in bytes what the plugin is told of a mistake in the ConfigMap.
const problemMost = 1 << 10

// Switch follows the fleet's switch, a ConfigMap, and hands the plugin what it says for the node.
type Switch struct {
	node       *node
	plugin     SwitchTaker
	log        logrus.FieldLogger
	store      cache.Store
	controller cache.Controller
	wake       chan struct{}

	handed   *status.Switch // what the plugin has taken; nil if it has taken none yet
	handedAt time.Time
	told     string // what the log said last
}

// Switch returns what follows the fleet's switch in a namespace, for the publisher's node.
func (p *Publisher) Switch(namespace string, plugin SwitchTaker) *Switch {
	s := &Switch{node: p.node, plugin: plugin, log: p.log, wake: make(chan struct{}, 1)}
	s.store, s.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(p.client.rest, "configmaps", namespace, fields.OneTermEqualSelector("metadata.name", policy.SwitchName)),
		ObjectType:    &corev1.ConfigMap{},
		Transform:     func(object any) (any, error) { return trimSwitch(object), nil },
		Handler: tell(func() {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}),
	})
	return s
}

// trimSwitch keeps of a ConfigMap what says which one it is, and its text.
func trimSwitch(object any) any {
	if full, ok := object.(*corev1.ConfigMap); ok {
		full.Annotations, full.Labels, full.ManagedFields, full.BinaryData = nil, nil, nil, nil
	}
	return object
}

// Run hands the switch over until the context ends. Before the API server has answered it hands
// nothing over: the plugin keeps what it has.
func (s *Switch) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); s.controller.Run(ctx.Done()) }()
	defer func() { <-done }()
	ticker := time.NewTicker(switchPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-ticker.C:
		}
		s.step(ctx)
	}
}

// step hands the switch over if the plugin lacks it, or may have forgotten it.
func (s *Switch) step(ctx context.Context) {
	now, known := s.says()
	if !known || s.handed != nil && *s.handed == now && time.Since(s.handedAt) < switchRepeat {
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

// tell logs what is wrong, once while it stays the same.
func (s *Switch) tell(ctx context.Context, problem, what string) {
	if problem != s.told && ctx.Err() == nil {
		s.told = problem
		s.log.WithField("problem", problem).Warn(what)
	}
}

// says returns what the fleet's switch says for the node. It is not known before the API server has
// answered, nor, if it depends on the node's labels, while the node object is not known.
func (s *Switch) says() (says status.Switch, known bool) {
	if !s.controller.HasSynced() {
		return says, false
	}
	objects := s.store.List()
	if len(objects) == 0 {
		return says, true
	}
	configMap, ok := objects[0].(*corev1.ConfigMap)
	if !ok {
		return says, false
	}
	known = true
	says, err := policy.Switch(configMap.Data, func(selector string) (bool, error) {
		parsed, err := labels.Parse(selector)
		if err != nil {
			return false, err
		}
		has, found := s.node.labels()
		known = found
		return parsed.Matches(labels.Set(has)), nil
	})
	if err != nil {
		says = status.Switch{Problem: clip(err.Error(), problemMost)}
	}
	return says, known
}
