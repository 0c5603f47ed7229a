package sell_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	sale "github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
)

// These are the nodes of a fleet besides the one that runs the program itself. They run as
// goroutines with an administrator's rights, as 50 processes would need the memory of many nodes.
const simulated = 49

// manyNodes are the switch as the plugins of many nodes have it.
type manyNodes struct {
	*stand
	plugins []*standin.Plugin // the first one is that of the program
}

func newFleet(t *testing.T) *manyNodes {
	t.Helper()
	s := newStand(t)
	s.program = standin.Run(t, nodeName, s.kubeconfig, s.plugin.Socket, "--namespace", "sluice", "--parts")
	f := &manyNodes{s, []*standin.Plugin{s.plugin}}
	admin := s.cluster.Kubeconfig(t, "admin", s.cluster.Admin())
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	for i := range simulated {
		name := fmt.Sprint("s", i)
		s.cluster.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {zone: z%d}}}", name, i%3))
		plugin := standin.Start(t)
		client, err := kube.NewClient(admin, name, "test")
		if err != nil {
			t.Fatal(err)
		}
		publisher := kube.NewPublisher(client, sale.Sluice.Names(), client.Events(log), log)
		running.Go(func() { publisher.Run(ctx) })
		follower := publisher.Switch("sluice", kubesocket.NewClient(plugin.Socket))
		parts := publisher.Parts("sluice", kubesocket.NewClient(plugin.Socket))
		running.Go(func() { follower.Run(ctx) })
		running.Go(func() { parts.Run(ctx) })
		f.plugins = append(f.plugins, plugin)
	}
	return f
}

// set replaces the ConfigMap with the fleet's switch.
func (f *manyNodes) set(data string) {
	f.Helper()
	f.cluster.Apply(f, "{apiVersion: v1, kind: ConfigMap, metadata: {name: sluice-switch, namespace: sluice}, data: "+data+"}")
}

// reach waits until as many plugins have a switch as wanted, and returns how long that took.
func (f *manyNodes) reach(what string, want int, has func(s status.Switch) bool) time.Duration {
	f.Helper()
	began := time.Now()
	bed.Await(f, what, func() error {
		n := 0
		for _, p := range f.plugins {
			if has(p.Fleet.Switch()) {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d of %d plugins, want %d", n, len(f.plugins), want)
		}
		return nil
	})
	return time.Since(began)
}

func is(state control.SwitchState) func(status.Switch) bool {
	return func(s status.Switch) bool { return s.State == state && s.Problem == "" }
}

// TestFleetSwitch switches 50 nodes, one of which the program itself follows with the rights that
// the chart grants.
func TestFleetSwitch(t *testing.T) {
	f := newFleet(t)
	all := len(f.plugins)
	const most = 10 * time.Second

	f.set(`{batch: "on"}`)
	f.reach("all nodes to follow", all, is(control.SwitchOn))

	t.Run("off reaches all nodes", func(t *testing.T) {
		f.T = t
		f.set(`{batch: "off", until: "2100-01-01T00:00:00Z"}`)
		took := f.reach("all nodes to be off", all, is(control.SwitchOff))
		t.Logf("the switch reached %d nodes in %v", all, took.Round(time.Millisecond))
		if took > most {
			t.Errorf("it took %v, want at most %v", took, most)
		}
		if s := f.plugins[0].Fleet.Switch(); s.EndsAt.Year() != 2100 {
			t.Errorf("it ends at %v", s.EndsAt)
		}
		bed.Await(t, "the node to sell nothing", func() error {
			if open := reason(f.node(), "SluiceBatchOpen"); open != "False Switch" {
				return fmt.Errorf("it says %s", open)
			}
			return nil
		})
	})

	t.Run("a mistake changes nothing, and the node says so", func(t *testing.T) {
		f.T = t
		f.set(`{batch: "of"}`)
		f.reach("all nodes to know of the mistake", all, func(s status.Switch) bool {
			return s.State == control.SwitchOff && strings.Contains(s.Problem, `the key batch has "of"`)
		})
		bed.Await(t, "the node's condition", func() error {
			if ready := reason(f.node(), "SluiceReady"); ready != "False ConfigRefused" {
				return fmt.Errorf("it says %s", ready)
			}
			return nil
		})
	})

	t.Run("a selector reaches its nodes alone, as their labels are", func(t *testing.T) {
		f.T = t
		f.set(`{batch: "off", evict: "true", nodeSelector: "zone in (z1,z2)"}`)
		const zones = 2 * 16 // of s0 to s48, those that leave 1 or 2
		f.reach("the nodes of the zones to be off", zones, is(control.SwitchOff))
		f.reach("the others to be auto", all-zones, is(control.SwitchAuto))
		f.cluster.Apply(t, "{apiVersion: v1, kind: Node, metadata: {name: s0, labels: {zone: z1}}}")
		f.reach("the node with another label to be off", zones+1, is(control.SwitchOff))
	})

	t.Run("nodes that were away", func(t *testing.T) {
		f.T = t
		f.program.Kill()
		away := f.plugins[1]
		away.Close()
		f.set(`{batch: "on"}`)
		f.reach("the others to be on", all-2, is(control.SwitchOn))
		away.Serve(t)
		f.program = standin.Run(t, nodeName, f.kubeconfig, f.plugin.Socket, "--namespace", "sluice")
		took := f.reach("both to be on", all, is(control.SwitchOn))
		t.Logf("a plugin and a program that were away had the switch %v after their return", took.Round(time.Millisecond))
		if took > most {
			t.Errorf("it took %v, want at most %v", took, most)
		}
	})

	t.Run("the API server away changes nothing", func(t *testing.T) {
		f.T = t
		f.cluster.APIServer.Kill(t)
		f.program.Kill()
		f.program = standin.Run(t, nodeName, f.kubeconfig, f.plugin.Socket, "--namespace", "sluice")
		const several = 5 * time.Second // a program that knew nothing would have said so every second
		time.Sleep(several)
		f.reach("all nodes to be on", all, is(control.SwitchOn))
		f.cluster.APIServer.Start(t)
		if err := f.client.CoreV1().ConfigMaps("sluice").Delete(t.Context(), "sluice-switch", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		took := f.reach("all nodes to be auto", all, is(control.SwitchAuto))
		t.Logf("without the ConfigMap %d nodes were auto after %v", all, took.Round(time.Millisecond))
	})
}

// part makes or changes a part of the fleet's policy.
func (f *manyNodes) part(name, data string) {
	f.Helper()
	f.cluster.Apply(f, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: sluice, labels: {sluice.dev/policy: part}}, data: "+data+"}")
}

// have waits until as many plugins as wanted have these parts, by their names, and returns them.
func (f *manyNodes) have(what, parts string, enough func(n int) bool) map[int]bool {
	f.Helper()
	var have map[int]bool
	bed.Await(f, what, func() error {
		have = map[int]bool{}
		for i, p := range f.plugins {
			var names []string
			for _, part := range p.Parts() {
				names = append(names, part.Name)
			}
			if strings.Join(names, " ") == parts {
				have[i] = true
			}
		}
		if !enough(len(have)) {
			return fmt.Errorf("%d of %d plugins", len(have), len(f.plugins))
		}
		return nil
	})
	return have
}

// share is how many nodes a share of all has, as the hash of their names has it.
func (f *manyNodes) share(percent int) (n int) {
	f.Helper()
	configMap, err := f.client.CoreV1().ConfigMaps("sluice").Get(f.Context(), "canary", metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	if got := configMap.Data["rolloutPercent"]; got != fmt.Sprint(percent) {
		f.Fatalf("the part is for %s %%", got)
	}
	names := []string{nodeName}
	for i := range simulated {
		names = append(names, fmt.Sprint("s", i))
	}
	for _, name := range names {
		n += len(policy.Parts(name, []policy.Source{{Name: "canary", Data: configMap.Data}}, nil))
	}
	return n
}

// TestFleetPolicy gives 50 nodes in three groups parts of a configuration, and one a share of all.
func TestFleetPolicy(t *testing.T) {
	f := newFleet(t)
	exactly := func(want int) func(int) bool { return func(n int) bool { return n == want } }
	const text = `sluice.yaml: "control: {batch: {floorPercent: 5}}"`
	for i := range 3 {
		f.part(fmt.Sprint("group", i), fmt.Sprintf(`{%s, order: "1", nodeSelector: zone=z%d}`, text, i))
	}
	for i, want := range []int{17, 16, 16} {
		f.have("each group to have its part", fmt.Sprint("group", i), exactly(want))
	}
	for i := range 3 {
		f.cluster.Delete(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: group%d, namespace: sluice}}", i))
	}
	f.have("nobody to have a part", "", exactly(len(f.plugins)))

	var before map[int]bool
	for _, percent := range []int{10, 30, 100} {
		f.part("canary", fmt.Sprintf(`{%s, rolloutPercent: "%d"}`, text, percent))
		want := f.share(percent)
		now := f.have(fmt.Sprintf("%d %% to have it", percent), "canary", exactly(want))
		if want <= len(before) {
			t.Errorf("%d %% are %d nodes, and less were %d", percent, want, len(before))
		}
		t.Logf("%d %% are %d of %d nodes", percent, len(now), len(f.plugins))
		for i := range before {
			if !now[i] {
				t.Errorf("with %d %% node %d has lost it", percent, i)
			}
		}
		before = now
	}
	f.part("canary", `{`+text+`, rolloutPercent: "many"}`)
	f.have("each node to know of the mistake", "canary", func(int) bool {
		for _, p := range f.plugins {
			if parts := p.Parts(); len(parts) != 1 || !strings.Contains(parts[0].Problem, "rolloutPercent") {
				return false
			}
		}
		return true
	})
}
