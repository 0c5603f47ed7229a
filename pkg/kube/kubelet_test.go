package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
)

// versions is a plugin that notes when it is told which version.
type versions struct {
	err  error
	told []string
	last time.Time
}

func (v *versions) SetKubelet(_ context.Context, version string) error {
	v.told, v.last = append(v.told, version), time.Now()
	return v.err
}

// The plugin is told the kubelet's version once it is known, again when it changes or may be forgotten,
// and each second until it takes it.
func TestTellKubelet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetLevel(logrus.PanicLevel)
		n := &node{}
		set := func(version string) {
			n.mu.Lock()
			n.now = &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: version}}}
			n.mu.Unlock()
		}
		plugin := &versions{err: errors.New("not now")}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go (&Publisher{node: n, log: log}).TellKubelet(ctx, plugin)
		after := func(d time.Duration, want ...string) {
			t.Helper()
			plugin.told = nil
			time.Sleep(d)
			synctest.Wait()
			if !slices.Equal(plugin.told, want) {
				t.Errorf("after %v it was told %q, want %q", d, plugin.told, want)
			}
		}
		after(5 * time.Second)
		set("v1.36.0")
		after(2*time.Second+time.Millisecond, "v1.36.0", "v1.36.0")
		plugin.err = nil
		after(30*time.Second, "v1.36.0")
		after(5*time.Second, "v1.36.0")
		set("v1.37.2")
		after(10*time.Second, "v1.37.2")
	})
}
