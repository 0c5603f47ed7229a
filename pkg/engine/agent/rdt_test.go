package agent

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/restore"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
)

// rdtNode is a node with resctrl. The threads of its containers' processes are in groups.
type rdtNode struct {
	*testNode
	t      *testing.T
	kernel *fake.Kernel
	host   *resctrl.Host
	setup  setup
	pids   map[string]int
}

const rdtYAML = `
rdt: {classes: {be: {l3: 0-30%, mb: 20%}, latency: {l3: 20-100%}}, perPod: true}
classes: {BE: {cpu-identity: -1, rdt-class: be}}
authorize: [{features: [rdt], namespaces: [default]}]
`

func withRDT(t *testing.T, m fake.Machine, yaml string, test func(n *rdtNode)) {
	t.Helper()
	t.Parallel()
	file := filepath.Join(t.TempDir(), "originals")
	synctest.Test(t, func(t *testing.T) {
		kernel := fake.New(m)
		host, err := resctrl.New(kernel, fake.Proc{Kernel: kernel}, false)
		if err != nil {
			t.Fatal(err)
		}
		n := &rdtNode{t: t, kernel: kernel, host: host, pids: map[string]int{}}
		n.setup = setup{originals: file, rdt: host, config: func(c *config.Config) {
			parsed, err := config.Parse([]byte(yaml))
			if err != nil {
				t.Fatal(err)
			}
			*c = *parsed
		}}
		n.testNode = newNode(t, n.setup)
		defer func() { n.runtime.answer(); n.stop() }()
		n.connect("")
		n.synchronize()
		n.pass()
		test(n)
	})
}

// start runs a container whose first process has two threads.
func (n *rdtNode) start(name, class string, annotations map[string]string) {
	n.t.Helper()
	n.pod(name, class, 0)
	maps.Copy(n.pods[name].Annotations, annotations)
	if err := n.create(name, class, 0); err != nil {
		n.t.Fatal(err)
	}
	pid := 100 * (len(n.pids) + 1)
	n.pids[name] = pid
	n.specs[name].PID = pid
	n.kernel.Start(pid, pid, pid+1)
	if err := n.begin(name); err != nil {
		n.t.Fatal(err)
	}
}

func (n *rdtNode) isIn(name, group string) {
	n.t.Helper()
	for _, tid := range []int{n.pids[name], n.pids[name] + 1} {
		if got, _ := n.kernel.Of(tid); got != group {
			n.t.Errorf("thread %d of %s is in group %q, want %q", tid, name, got, group)
		}
	}
}

func (n *rdtNode) schemata(group string) string {
	n.t.Helper()
	text, err := n.kernel.Read(filepath.Join(group, "schemata"))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Join(strings.Fields(text), " ")
}

func TestRDTClass(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		n.start("batch", "BE", nil)
		n.isIn("batch", "sluice-be")
		n.start("web", "LS", map[string]string{"rdt-class.sluice.dev": "latency"})
		n.isIn("web", "sluice-latency")
		n.start("plain", "LS", nil)
		n.isIn("plain", "")
		if got := n.container("batch").Settings; !slices.ContainsFunc(got, func(k status.Setting) bool { return k.Knob == "resctrl group" && k.Value == "sluice-be" }) {
			n.t.Errorf("status tells nothing of the group: %v", got)
		}
	})
}

// The counters of resctrl are part of the container's measurement.
func TestRDTUsage(t *testing.T) {
	withRDT(t, fake.Intel(), "rdt: {monitor: true}\n", func(n *rdtNode) {
		n.start("web", "LS", nil)
		if c := n.container("web"); c.Cache != nil || !c.CacheMeasuredAt.IsZero() {
			n.t.Errorf("before the first look: %+v", c)
		}
		now := time.Now()
		s := seen(now, "web")
		s.Containers[0].Cache = observe.Cache{At: now, Occupancy: 4096, L3s: []observe.L3{{ID: 1, OccupancyBytes: 4096, TotalBytes: 7, LocalBytes: -1}}}
		n.agent.Tick(s)
		if c := n.container("web"); !slices.Equal(c.Cache, s.Containers[0].Cache.L3s) || !c.CacheMeasuredAt.Equal(now) {
			n.t.Errorf("%+v of %s", c.Cache, c.CacheMeasuredAt)
		}
	})
}

func TestRDTAdjustment(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		n.pod("batch", "BE", 0)
		reply, _, err := n.agent.CreateContainer(context.Background(), n.podOf("batch"), *n.specs["batch"])
		if err != nil || reply.RDTGroup != "sluice-be" {
			n.t.Errorf("group %q, %v", reply.RDTGroup, err)
		}
	})
}

func TestRDTDrift(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		before := n.schemata("sluice-be")
		id, _, _ := strings.Cut(strings.SplitN(before, ":", 2)[1], "=")
		if err := n.kernel.Write("sluice-be/schemata", "L3:"+id+"=1\n"); err != nil {
			n.t.Fatal(err)
		}
		n.pass()
		if now := n.schemata("sluice-be"); now != before {
			n.t.Errorf("schemata %q, want %q", now, before)
		}
		if got := n.status().Counters.Drift; got != 1 {
			n.t.Errorf("%d drifts are counted", got)
		}
	})
}

func TestRDTOfAPod(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		own := map[string]string{"node.koordinator.sh/resctrl": `{"llc":{"schemata":{"range":[20,80]}},"mb":{"schemata":{"percent":20}}}`}
		n.start("own", "LS", own)
		n.isIn("own", "sluice-pod-own")
		n.kernel.End(n.pids["own"], n.pids["own"]+1)
		n.end("own")
		if groups := n.kernel.Groups(); slices.Contains(groups, "sluice-pod-own") {
			n.t.Errorf("the pod is gone and its group is there: %v", groups)
		}
	})
}

// If the processor has no control group left, the container runs without one and has a warning.
func TestRDTExhausted(t *testing.T) {
	machine := fake.Intel()
	machine.CLOSIDs = 3 // of the default group and of two classes
	withRDT(t, machine, rdtYAML, func(n *rdtNode) {
		n.start("own", "LS", map[string]string{"node.koordinator.sh/resctrl": `{"llc":{"schemata":{"range":[20,80]}}}`})
		n.isIn("own", "")
		for _, when := range []string{"after its start", "after its settings were declared again"} {
			lacks := n.container("own").Lacks
			if len(lacks) != 1 || !lacks[0].Missing || !strings.Contains(lacks[0].Text, "CLOSID") {
				n.t.Errorf("%s it lacks %+v", when, lacks)
			}
			if err := n.agent.PostUpdateContainer("own"); err != nil {
				n.t.Error(err)
			}
		}
	})
}

func TestRDTRequired(t *testing.T) {
	inBubble(t, setup{config: func(c *config.Config) { c.Authorize, c.RDTClasses = nil, []string{"be"} }}, func(t *testing.T, n *testNode) {
		n.pod("batch", "BE", 0)
		n.pods["batch"].Annotations["rdt-class.sluice.dev"] = "be"
		n.pods["batch"].Annotations["required.sluice.dev"] = "rdt-class"
		err := n.create("batch", "BE", 0)
		if err == nil || !strings.Contains(err.Error(), "rdt-class is required and not to be had on this node") {
			t.Errorf("%v", err)
		}
	})
}

func TestRDTRestored(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		n.start("batch", "BE", nil)
		n.stop()
		defer n.launch(n.setup)
		book := readJournal(n.t, n.setup.originals)
		if _, err := restore.Run(&restore.Host{RDT: n.host}, book, false); err != nil {
			n.t.Fatal(err)
		}
		if groups := n.kernel.Groups(); len(groups) > 0 {
			n.t.Errorf("left: %v", groups)
		}
		n.isIn("batch", "")
	})
}

func TestRDTAfterRestart(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		n.start("batch", "BE", nil)
		n.kernel.Writes()
		n.restart(n.setup)
		n.sleep(2 * time.Second)
		if writes := n.kernel.Writes(); len(writes) > 0 {
			n.t.Errorf("the restart wrote %q", writes)
		}
		n.isIn("batch", "sluice-be")
	})
}

// The loop narrows the class of batch work, which does not count as drift, and restores it.
func TestRDTNarrows(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML+"control: {cache: {mode: on, class: be}}\n", func(n *rdtNode) {
		full, latency := n.schemata("sluice-be"), n.schemata("sluice-latency")
		shareCache := func(s control.CacheShare) string {
			n.loop(func() { n.agent.groups.ShareCache(s) })
			n.pass()
			return n.schemata("sluice-be")
		}
		if now := shareCache(control.CacheShare{Cache: 40, Bandwidth: 50}); now == full {
			n.t.Errorf("schemata %q is not narrower", now)
		}
		if now := shareCache(control.CacheShare{Cache: 100, Bandwidth: 100}); now != full {
			n.t.Errorf("schemata %q when calm, want %q", now, full)
		}
		shareCache(control.CacheShare{Cache: 40, Bandwidth: 50})
		if now := shareCache(control.CacheShare{}); now != full {
			n.t.Errorf("schemata %q in preview, want %q", now, full)
		}
		if now := n.schemata("sluice-latency"); now != latency {
			n.t.Errorf("another class has %q, had %q", now, latency)
		}
		if drift := n.status().Counters.Drift; drift > 0 {
			n.t.Errorf("%d drifts", drift)
		}
	})
}

// When koordlet comes and goes, the groups that Sluice had made still count as Sluice's.
func TestRDTGroupsOutliveALossOfAuthority(t *testing.T) {
	withRDT(t, fake.Intel(), rdtYAML, func(n *rdtNode) {
		n.start("own", "LS", map[string]string{"node.koordinator.sh/resctrl": `{"llc":{"schemata":{"range":[20,80]}}}`})
		groups := len(n.kernel.Groups())
		n.loop(func() { n.agent.setNeighbours([]peers.Neighbour{{Kind: peers.Koordlet}}, nil) })
		n.pass()
		n.loop(func() { n.agent.setNeighbours(nil, nil) })
		n.start("batch", "BE", nil)
		n.isIn("batch", "sluice-be")
		n.end("own")
		if got := len(n.kernel.Groups()); got != groups-1 {
			n.t.Errorf("%d groups are left of %d: %v", got, groups, n.kernel.Groups())
		}
	})
}
