package podsettings

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// On cgroup v1, the quota that the loop gives a cgroup leaves room for a container that is about
// to start in it.
func TestRoomForStarts(t *testing.T) {
	t.Parallel()
	milli := func(n int) knobs.CPUQuota {
		return knobs.CPUQuota{Quota: time.Duration(n) * 100 * time.Microsecond, Period: 100 * time.Millisecond}
	}
	created := &node.Container{Quota: milli(500)}
	squeezed := &node.Container{Quota: milli(500), Carried: knobs.Values{knobs.Quota: milli(300)}}
	for name, test := range map[string]struct {
		v2    bool
		loop  knobs.CPUQuota
		below []*node.Container
		want  knobs.CPUQuota
	}{
		"nothing wanted":         {below: []*node.Container{created}},
		"nobody below":           {loop: milli(200), want: milli(200)},
		"its limit":              {loop: milli(200), below: []*node.Container{created}, want: milli(500)},
		"what it was created by": {loop: milli(200), below: []*node.Container{squeezed}, want: milli(300)},
		"the largest":            {loop: milli(200), below: []*node.Container{squeezed, created}, want: milli(500)},
		"room enough":            {loop: milli(700), below: []*node.Container{created}, want: milli(700)},
		"one that runs":          {loop: milli(200), below: []*node.Container{{Started: true, Quota: milli(500)}}, want: milli(200)},
		"one without a quota":    {loop: milli(200), below: []*node.Container{{}}, want: milli(200)},
		"v2 needs none":          {v2: true, loop: milli(200), below: []*node.Container{created}, want: milli(200)},
	} {
		a := New(&node.Node{}, nil, false)
		a.QoS.Features.Knobs[knobs.Quota].V2 = test.v2
		if got := a.roomFor(qos.Loop{Quota: test.loop, Why: "the loop"}, test.below).Quota; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
