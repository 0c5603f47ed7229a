package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
	"github.com/sluice-dev/sluice/topology/synth"
)

// partsNode is a node whose plugin takes parts of the fleet's policy.
type partsNode struct {
	*testing.T
	root string
	o    Options
	s    service
	a    *agent.Agent
}

func newPartsNode(t *testing.T, text string, keys ...string) *partsNode {
	t.Helper()
	root, err := os.MkdirTemp("", "daemon") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	n := &partsNode{T: t, root: root}
	t.Cleanup(func() { n.s.stop(); os.RemoveAll(root) })
	n.o = Options{
		Config: filepath.Join(root, "sluice.yaml"), HostRoot: filepath.Join(root, "host"), StateDir: filepath.Join(root, "state"), RuntimeDir: filepath.Join(root, "run"),
		StatusSocket: filepath.Join(root, "s"), KubeSocket: filepath.Join(root, "k"), FleetKeys: keys,
	}
	machine(t, n.o.HostRoot)
	n.write(text)
	return n
}

func (n *partsNode) write(text string) {
	n.Helper()
	if err := os.WriteFile(n.o.Config, []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// start starts the plugin, or starts it again. The runtime has not sent its containers.
func (n *partsNode) start() {
	n.Helper()
	n.s.stop()
	cfg, text, err := config.Load(n.o.Config)
	if err != nil {
		n.Fatal(err)
	}
	cfg.Log.File = filepath.Join(n.root, "log")
	n.s = service{Options: &n.o, text: text}
	if n.a, _, err = n.s.start(cfg, configured(n.o.Config, text)); err != nil {
		n.Fatal(err)
	}
}

func (n *partsNode) synchronize() {
	n.Helper()
	if _, err := n.a.Synchronize(n.Context(), nil, nil); err != nil {
		n.Fatal(err)
	}
}

// send hands parts over until the plugin takes them.
func (n *partsNode) send(parts ...policy.Part) {
	n.Helper()
	await(n.T, func() error { return kubesocket.NewClient(n.o.KubeSocket).SetParts(n.Context(), parts) })
}

// has waits for the parts in the status, the problem of the file, and the value of a key.
func (n *partsNode) has(what, parts, problem, key, value string) {
	n.Helper()
	await(n.T, func() error {
		now, err := n.a.Status()
		if err != nil {
			return err
		}
		diff, err := n.a.ConfigDiff(config.Default())
		if err != nil {
			return err
		}
		got := "default"
		for _, k := range diff.Keys {
			if k.Key == key {
				got = k.From
			}
		}
		if fmt.Sprint(now.Config.Parts) != parts || got != value || (problem == "") != (now.Config.Problem == "") || !strings.Contains(now.Config.Problem, problem) {
			return fmt.Errorf("%s: it has %v, %s: %s, the problem %q", what, now.Config.Parts, key, got, now.Config.Problem)
		}
		return nil
	})
}

// Parts of the fleet's policy are in force at once and after a restart, over a file that changes
// below them, and a bad one changes nothing.
func TestParts(t *testing.T) {
	t.Parallel()
	n := newPartsNode(t, "mode: preview\ncontrol: {batch: {floorPercent: 3}}\n", "control")
	const floor, all = "control.batch.floorPercent", "[{night [control.batch.floorPercent] } {own [] mode: a part may set control and pools alone; set it in the node's own sluice.yaml} {share [] a pool}]"
	night := policy.Part{Name: "night", Text: "control: {batch: {floorPercent: 5}}"}
	n.start()
	early := kubesocket.NewClient(n.o.KubeSocket)
	await(t, func() error {
		if err := early.SetParts(t.Context(), []policy.Part{night}); err == nil || !strings.Contains(err.Error(), "has not yet sent its containers") {
			return fmt.Errorf("before Synchronize: %w", err)
		}
		return nil
	})
	n.synchronize()
	n.send(night, policy.Part{Name: "own", Text: "mode: on"}, policy.Part{Name: "share", Problem: "a pool"})
	n.has("sent", all, "", floor, "5")
	n.write("mode: of\n")
	n.s.reload.read(true)
	n.has("a broken file", all, "must be on or preview", floor, "5")
	night.Text = "control: {batch: {floorPercent: 6}}"
	n.send(night)
	n.has("another part, and the broken file", "[{night [control.batch.floorPercent] }]", "must be on or preview", floor, "6")

	n.write("mode: preview\ncontrol: {batch: {floorPercent: 4}}\n")
	n.start()
	n.has("after a restart", "[{night [control.batch.floorPercent] }]", "", floor, "6")
	n.s.reload.read(true)
	n.has("a reload before Synchronize", "[{night [control.batch.floorPercent] }]", "", floor, "6")
	n.synchronize()
	n.send()
	n.has("without parts", "[]", "", floor, "4")
	n.start()
	n.has("without parts, after a restart", "[]", "", floor, "4")
}

// A restart with parts gives back nothing that containers have.
func TestPartsLeaveSettingsAtARestart(t *testing.T) {
	t.Parallel()
	n := newPartsNode(t, "mode: on\n", "control")
	n.start()
	n.synchronize()
	n.send(policy.Part{Name: "night", Text: "control: {batch: {floorPercent: 5}}"})
	n.s.stop()
	dir := filepath.Join(n.o.HostRoot, "sys/fs/cgroup/kubepods/pod1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	quota := filepath.Join(dir, "cpu.max")
	if err := os.WriteFile(quota, []byte("200000 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := statedir.Of(config.Default(), n.o.StateDir, n.o.RuntimeDir)
	book, err := journal.Open(at.JournalFile(), "")
	if err != nil {
		t.Fatal(err)
	}
	pod := knobs.Object{Path: "/kubepods/pod1", Level: knobs.PodLevel}
	book.Record(pod, knobs.Quota, knobs.CPUQuota{Quota: 100 * time.Millisecond, Period: 100 * time.Millisecond})
	book.RecordWrite(pod.Path, knobs.Quota, knobs.CPUQuota{Quota: 200 * time.Millisecond, Period: 100 * time.Millisecond})
	if err := book.Close(); err != nil {
		t.Fatal(err)
	}
	n.s = service{}
	n.start()
	n.has("after a restart", "[{night [control.batch.floorPercent] }]", "", "control.batch.floorPercent", "5")
	has := func(want string) error {
		if text, err := os.ReadFile(quota); err != nil || strings.TrimSpace(string(text)) != want {
			return fmt.Errorf("the quota is %q, want %s: %w", text, want, err)
		}
		return nil
	}
	if err := has("200000 100000"); err != nil {
		t.Error(err)
	}
	n.synchronize() // the runtime has no such container, so what an earlier run gave it is given back
	await(t, func() error { return has("100000 100000") })
}

// What a node refuses is tried again, ever more seldom, until it is in force; a restart does not put
// it in force before the containers are known.
func TestRefusedPartsAreTriedAgain(t *testing.T) {
	t.Parallel()
	const fits, big = "pools: {mode: exclusive, list: [{name: online}, {name: batch, cpus: 1}]}", "pools: {mode: exclusive, list: [{name: online, cpus: 20}, {name: batch}]}"
	n := newPartsNode(t, "mode: preview\n", "pools")
	n.start()
	n.synchronize()
	n.send(policy.Part{Name: "big", Text: big}, policy.Part{Name: "loop", Text: "control: {mode: on}"})
	const tooBig, loop = "it does not fit this machine: pools.list: the pools take 20 CPUs, and this machine has 4 for them", " {loop [] control.mode: this node does not allow parts to set it; add it to 'sluice run --fleet-keys', or remove it from the part}]"
	const refused, taken = "[{big [] " + tooBig + "}" + loop, "[{big [pools.mode pools.list] }" + loop
	n.has("too big", refused, "", "pools.mode", "default")
	for pause := firstPause; pause < 5*firstPause; {
		pause *= 2
		at := n.s.reload.again
		n.s.reload.retry(at.Add(-time.Nanosecond)) // too early
		n.s.reload.retry(at)
		if got := n.s.reload.again.Sub(at); got != pause {
			t.Errorf("the next attempt is %v later, want %v", got, pause)
		}
	}
	spec, err := synth.Parse("24 cores")
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.WriteTo(n.o.HostRoot); err != nil {
		t.Fatal(err)
	}
	n.start()
	n.has("after a restart", refused, "", "pools.mode", "default")
	n.s.reload.retry(time.Now())
	n.has("before Synchronize", refused, "", "pools.mode", "default")
	n.synchronize()
	n.s.reload.retry(time.Now())
	n.has("on a large machine", taken, "", "pools.mode", "exclusive")

	// The part that makes the node's own file fit stays when it is removed, and holds up no other.
	n.write("mode: preview\npools: {mode: exclusive, list: [{name: online, cpus: 30}, {name: batch}]}\n")
	n.start()
	n.synchronize()
	n.send(policy.Part{Name: "fits", Text: fits})
	n.send(policy.Part{Name: "other", Text: "pools: {mode: exclusive}"})
	now, err := n.a.Status()
	if p := now.Config.Parts; err != nil || len(p) != 2 || p[0].Name != "fits" || !strings.Contains(p[0].Problem, "its earlier text stays in force") || p[1].Problem != "" {
		t.Errorf("%v, %v", p, err)
	}
}

// A loop that is off until a restart is not said to be in force by a part, and one that a part has
// switched off comes back with the removal of the part, even after a restart.
func TestPartsOfALoop(t *testing.T) {
	t.Parallel()
	n := newPartsNode(t, "mode: preview\ncontrol: {mode: \"off\"}\n", "control")
	n.start()
	n.synchronize()
	n.send(policy.Part{Name: "loop", Text: "control: {mode: preview}"})
	n.has("off at the start", "[{loop [] control.mode: this value takes a restart of Sluice; set it in the node's own sluice.yaml}]", "", "control.mode", `off`)

	n.write("mode: preview\ncontrol: {mode: preview}\n")
	n.start()
	n.synchronize()
	n.send(policy.Part{Name: "loop", Text: `control: {mode: "off"}`})
	n.has("off by the part", "[{loop [control.mode] }]", "", "control.mode", "off")
	n.start()
	n.has("off after a restart", "[{loop [control.mode] }]", "", "control.mode", "off")
	n.synchronize()
	n.send()
	n.has("on again", "[]", "", "control.mode", "default") // which is preview
}
