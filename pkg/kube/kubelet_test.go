package kube

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
)

// versions is a plugin that notes when it is told which version.
type versions struct {
	mu   sync.Mutex
	err  error
	told []string
}

func (v *versions) SetKubelet(_ context.Context, version string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told = append(v.told, version)
	return v.err
}

// take returns what it was told since the last time; from then on it returns err.
func (v *versions) take(err error) (told []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	told, v.told, v.err = v.told, nil, err
	return told
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
		plugin := &versions{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go (&Publisher{node: n, log: log}).TellKubelet(ctx, plugin)
		after := func(d time.Duration, err error, want ...string) {
			t.Helper()
			plugin.take(err)
			time.Sleep(d)
			synctest.Wait()
			if told := plugin.take(err); !slices.Equal(told, want) {
				t.Errorf("after %v it was told %q, want %q", d, told, want)
			}
		}
		refused := errors.New("not now")
		after(5*time.Second, refused)
		set("v1.36.0")
		after(2*time.Second+time.Millisecond, refused, "v1.36.0", "v1.36.0")
		after(30*time.Second, nil, "v1.36.0")
		after(5*time.Second, nil, "v1.36.0")
		set("v1.37.2")
		after(10*time.Second, nil, "v1.37.2")
	})
}
