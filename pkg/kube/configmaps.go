package kube

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// These are the times of handing over to the plugin what ConfigMaps say.
const (
	handPause  = time.Second      // between two attempts, and between two looks at the node's labels
	handRepeat = 30 * time.Second // until the plugin gets the same again: its state folder may be new
)

// follower follows ConfigMaps of a namespace, and calls a function after each change and once a
// second.
type follower struct {
	node       *node
	log        logrus.FieldLogger
	store      cache.Store
	controller cache.Controller
	wake       chan struct{}
	step       func(ctx context.Context)
	told       string // what the log said last
}

func (p *Publisher) follow(namespace string, which func(*metav1.ListOptions), step func(ctx context.Context)) *follower {
	f := &follower{node: p.node, log: p.log, wake: make(chan struct{}, 1), step: step}
	f.store, f.controller = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(p.client.rest, "configmaps", namespace, which),
		ObjectType:    &corev1.ConfigMap{},
		Transform:     func(object any) (any, error) { return trimConfigMap(object), nil },
		Handler: tell(func() {
			select {
			case f.wake <- struct{}{}:
			default:
			}
		}),
	})
	return f
}

// trimConfigMap keeps of a ConfigMap what says which one it is, and its texts.
func trimConfigMap(object any) any {
	if full, ok := object.(*corev1.ConfigMap); ok {
		full.Annotations, full.Labels, full.ManagedFields, full.BinaryData = nil, nil, nil, nil
	}
	return object
}

// Run hands over what the ConfigMaps say until the context ends. Before the API server has answered
// it hands nothing over: the plugin keeps what it has.
func (f *follower) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() { defer close(done); f.controller.Run(ctx.Done()) }()
	defer func() { <-done }()
	ticker := time.NewTicker(handPause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-ticker.C:
		}
		f.step(ctx)
	}
}

// all returns the ConfigMaps. They must not be changed.
func (f *follower) all() []*corev1.ConfigMap {
	var all []*corev1.ConfigMap
	for _, object := range f.store.List() {
		if c, ok := object.(*corev1.ConfigMap); ok {
			all = append(all, c)
		}
	}
	return all
}

// tell logs what is wrong, once while it stays the same.
func (f *follower) tell(ctx context.Context, problem, what string) {
	if problem != f.told && ctx.Err() == nil {
		f.told = problem
		f.log.WithField("problem", problem).Warn(what)
	}
}
