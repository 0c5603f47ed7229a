package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
)

type syncedController struct{ cache.Controller }

func (syncedController) HasSynced() bool { return true }

// refusingTaker refuses parts until it is told otherwise.
type refusingTaker struct {
	err   error
	times []time.Time
}

func (r *refusingTaker) SetParts(context.Context, []policy.Part) error {
	r.times = append(r.times, time.Now())
	return r.err
}

// Parts that the plugin refuses go to it ever more seldom; others go at once.
func TestRefusedPartsBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetLevel(logrus.PanicLevel)
		plugin := &refusingTaker{err: errors.New("no")}
		p := &Parts{name: "n", plugin: plugin, follower: &follower{log: log, store: cache.NewStore(cache.MetaNamespaceKeyFunc), controller: syncedController{}}}
		put := func(text string) {
			if err := p.store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"sluice.yaml": text}}); err != nil {
				t.Fatal(err)
			}
		}
		minute := func() int {
			plugin.times = nil
			for range 60 {
				p.step(t.Context())
				time.Sleep(time.Second)
			}
			return len(plugin.times)
		}
		put("control: {}")
		if n := minute(); n != 6 { // after 0, 1, 3, 7, 15 and 31 s
			t.Errorf("%d attempts in the first minute: %v", n, plugin.times)
		}
		if n := minute(); n != 2 {
			t.Errorf("%d attempts in the second minute: %v", n, plugin.times)
		}
		put("pools: {}")
		at := time.Now()
		if minute(); !plugin.times[0].Equal(at) {
			t.Errorf("the change waits for %v", plugin.times[0].Sub(at))
		}
		plugin.err = nil
		put("control: {}")
		if n := minute(); n != 2 { // at once, and again after handRepeat
			t.Errorf("%d attempts when it takes them", n)
		}
	})
}
