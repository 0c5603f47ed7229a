package guest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// churn creates, starts, resizes, ends and replaces containers of all classes in random order
// while a sampler runs.
type churn struct {
	*node
	rand *rand.Rand
	eyes *sampler
	pods []*churnPod

	created, started, pinned, resized, refused int
}

type churnPod struct {
	*runtime.Pod
	slots []*slot
}

// slot is a container of a pod's manifest.
type slot struct {
	ask
	c       *runtime.Container // nil before its creation and after its end
	started bool
}

func (s *slot) pin() bool { return s.class == "LSE" || s.class == "LSR" }

func (n *node) churn(seed uint64) *churn {
	n.t.Logf("seed %d", seed)
	return &churn{node: n, rand: rand.New(rand.NewPCG(seed, 0)), eyes: n.sample()}
}

// testChurn is the acceptance test: a pin's CPU is never in another container's set. SLUICE_CHURN
// is the number of creations.
func testChurn(n *node) {
	creations, err := strconv.Atoi(os.Getenv("SLUICE_CHURN"))
	must(n.t, err)
	c := n.churn(1)
	for c.created < creations {
		c.step()
	}
	c.end()
	if c.pinned < creations/6 {
		n.t.Errorf("only %d pins started in %d creations: too few to prove anything", c.pinned, creations)
	}
}

// testCrashes kills the plugin and the runtime in turns during a churn.
func testCrashes(n *node) {
	c := n.churn(2)
	for crash := range 4 {
		for c.created < 6*(crash+1) {
			c.step()
		}
		before := c.pins()
		if crash%2 == 0 {
			must(n.t, n.sluice.Kill())
			c.endOne() // the CPUs of a container that ends while the plugin is away are freed when it returns
			must(n.t, n.sluice.Restart())
		} else {
			n.restartRuntime()
		}
		for id, cpus := range c.pins() {
			if cpus != before[id] {
				n.t.Errorf("crash %d moved pin %s from CPUs %s to %s", crash, id, before[id], cpus)
			}
		}
		c.consistent()
	}
	c.end()
}

// end checks that plugin and kernel agree, and removes everything.
func (c *churn) end() {
	c.consistent()
	c.t.Logf("%d creations, %d of them started, %d pins; %d resizes; %d refused", c.created, c.started, c.pinned, c.resized, c.refused)
	for _, p := range c.pods {
		must(c.t, p.Remove())
	}
	c.eyes.end(c.node)
}

func (c *churn) step() {
	dice := c.rand.IntN(100)
	switch {
	case len(c.pods) < 3, len(c.pods) < 4 && dice < 2:
		c.newPod()
		return
	case dice < 3:
		i := c.rand.IntN(len(c.pods))
		must(c.t, c.pods[i].Remove())
		c.pods = append(c.pods[:i], c.pods[i+1:]...)
		return
	}
	p := c.pods[c.rand.IntN(len(c.pods))]
	s := p.slots[c.rand.IntN(len(p.slots))]
	switch {
	case s.c == nil, !s.started && dice < 20: // one that never starts is replaced
		c.create(p, s)
	case !s.started:
		c.start(s)
	case dice < 25:
		c.resize(s)
	case dice < 60:
		c.finish(s)
	}
}

func (c *churn) newPod() {
	var asks []ask
	p := &churnPod{}
	for i := range 2 + c.rand.IntN(4) {
		a := ask{name: fmt.Sprintf("c%d", i), class: workload.Classes()[c.rand.IntN(5)]}
		switch a.class {
		case "LSE":
			a.cpus = 2 + c.rand.IntN(4)/3*2
		case "LSR":
			a.cpus = 1 + c.rand.IntN(3)
		}
		asks, p.slots = append(asks, a), append(p.slots, &slot{ask: a})
	}
	p.Pod = c.pod(asks...)
	c.pods = append(c.pods, p)
}

func (c *churn) create(p *churnPod, s *slot) {
	c.created++
	created, err := p.Create(runtime.ContainerSpec{Name: s.name, Resources: s.resources()})
	if c.refusal(s, err) {
		s.c = nil
		c.endOne() // makes room for the next one
		return
	}
	s.c = created
	if class, _ := workload.ParseClass(s.class); class.Pinned() {
		c.eyes.pin(created.ID, class)
	}
}

func (c *churn) start(s *slot) {
	if c.refusal(s, s.c.Start()) {
		s.c = nil
		return
	}
	s.started = true
	c.started++
	first, err := s.c.First()
	must(c.t, err)
	if s.pin() {
		c.pinned++
		if first.CPUs.Size() != s.cpus || s.class == "LSE" && !wholeCores(first.CPUs) {
			c.t.Errorf("%s of %d CPUs sees %s at its first instruction", s.class, s.cpus, first.CPUs)
		}
	}
	for id, cpus := range c.pins() {
		if id != s.c.ID && cpus.Overlaps(first.CPUs) {
			c.t.Errorf("%s sees CPUs %s at its first instruction, pin %s has %s", s.class, first.CPUs, id, cpus)
		}
	}
}

// refusal distinguishes a pin that finds no CPUs from a failure.
func (c *churn) refusal(s *slot, err error) bool {
	c.t.Helper()
	if err == nil {
		return false
	}
	if !s.pin() || !strings.Contains(err.Error(), "sluice: ") {
		c.t.Fatalf("%s: %v", s.class, err)
	}
	c.refused++
	return true
}

func (c *churn) resize(s *slot) {
	to := s.ask
	switch s.class {
	case "LSE":
		to.cpus = 6 - s.cpus // 2 or 4 CPUs
	case "LSR":
		to.cpus = 1 + c.rand.IntN(3)
	default:
		return
	}
	if !c.refusal(s, s.c.Resize(to.resources())) {
		s.ask = to
		c.resized++
	}
	if got := c.cpus(s.c); got.Size() != s.cpus {
		c.t.Errorf("%s of %d CPUs has %s after a resize", s.class, s.cpus, got)
	}
}

// finish ends a running container in one of three ways.
func (c *churn) finish(s *slot) {
	switch c.rand.IntN(3) {
	case 0:
		must(c.t, s.c.Crash())
	case 1:
		must(c.t, s.c.Stop())
	case 2:
		must(c.t, s.c.Remove())
	}
	s.c, s.started = nil, false
}

// endOne ends one running container, a pin if there is one.
func (c *churn) endOne() {
	var one *slot
	for _, s := range c.running() {
		if one == nil || s.pin() {
			one = s
		}
	}
	if one != nil {
		c.finish(one)
	}
}

func (c *churn) running() (all []*slot) {
	for _, p := range c.pods {
		for _, s := range p.slots {
			if s.started {
				all = append(all, s)
			}
		}
	}
	return all
}

// pins returns the CPUs of running pins, by container ID.
func (c *churn) pins() map[string]cpuset.Set {
	pins := map[string]cpuset.Set{}
	for _, s := range c.running() {
		if s.pin() {
			pins[s.c.ID] = c.cpus(s.c)
		}
	}
	return pins
}

// consistent waits until the kernel has what the plugin's status says.
func (c *churn) consistent() {
	c.t.Helper()
	all := online(c.t, "cpu")
	await(c.t, func() error {
		for _, s := range c.running() {
			want := c.statusOf(s.c).CPUs
			if want.IsEmpty() {
				want = all
			}
			if got := c.cpus(s.c); got != want || s.pin() && got.Size() != s.cpus {
				return fmt.Errorf("%s of %d CPUs has %s, the plugin says %s", s.class, s.cpus, got, want)
			}
		}
		return nil
	})
}
