package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
)

// stress has services whose load the test draws, beside batch work that takes all it can get.
// Together the services request less than half of the node.
const stress = `
machine: 8 cores 2 threads memory 32G
duration: 1h
pods:
- {name: pay, annotations: {class.sluice.dev: LS, pool.sluice.dev: critical}, requests: {cpu: 2}, limits: {cpu: 4}, load: {cpu: 1}, service: {time: 2ms, slo: 20ms}}
- {name: shop, count: 2, annotations: {class.sluice.dev: LS}, requests: {cpu: 1500m}, load: {cpu: 1}, service: {time: 4ms, slo: 40ms}}
- {name: api, annotations: {class.sluice.dev: LS}, requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}, load: {cpu: 1}}
- {name: side, annotations: {class.sluice.dev: LS}, requests: {cpu: 300m}, load: {cpu: 1}}
- {name: grind, count: 3, annotations: {class.sluice.dev: BE}, load: {cpu: 8, threads: 8}}
- {name: job, start: 10s, end: 19s, annotations: {class.sluice.dev: BE}, load: {cpu: 4, threads: 4}}
config:
  classes: {BE: {cpu-identity: -1}}
  control: {pools: {slowWindow: 3s, shrinkPause: 500ms, newPodTime: 2s}}
`

// All services' load rises at once, after batch work has had their CPUs for a while. The fault
// begins within a second of that.
const (
	calm     = 8 * time.Second
	rise     = 16 * time.Second
	recovery = 6 * time.Second  // changing load after the fault
	settling = 10 * time.Second // little load at the end
)

// fault is a temporary failure.
type fault struct {
	name    string
	lasts   time.Duration
	blurs   func(r *rig, s *observe.Snapshot) // changes what the loop measures
	freezes bool                              // the plugin's clock stands still
	deadly  bool                              // containers end between the loop's decisions and its writes
	silent  bool                              // the plugin hangs
	gone    bool                              // the plugin has ended
	forever bool
	acts    int // expected number of times that the failsafe acts
}

func faults() []fault {
	return []fault{
		{name: "nothing goes wrong"},
		{name: "sampler errors", lasts: 10 * time.Second, blurs: (*rig).lose},
		{name: "a frozen clock", lasts: 10 * time.Second, freezes: true},
		{name: "containers die between decision and write", lasts: 10 * time.Second, deadly: true},
		{name: "no metrics for a minute", lasts: time.Minute, blurs: func(_ *rig, s *observe.Snapshot) { *s = observe.Snapshot{Now: s.Now} }},
		{name: "a loop that stalls for 5 s", lasts: failsafe.Silence, silent: true, acts: 1},
		{name: "a loop that stalls for longer", lasts: failsafe.Silence + 3*time.Second, silent: true, acts: 1},
		{name: "a restart in mid-squeeze", lasts: 2 * time.Second, gone: true},
		{name: "killed for good", lasts: 20 * time.Second, gone: true, forever: true, acts: 1},
	}
}

// blind returns for how long after the fault's begin nobody sees what services want: until the
// loop sees it again or the failsafe has acted.
func (f *fault) blind() time.Duration {
	if f.silent || f.gone {
		return min(f.lasts, failsafe.Silence) + step
	}
	return 0
}

// brokenSeeds are seeds that once failed: the loads rise when a service of a higher pool has just died,
// whose pool keeps its CPUs in 3705, and in 3719 doesn't; nothing is measured for three ticks in 3711; and
// in 3928 the loads of two pools rise at once.
func brokenSeeds() []uint64 { return []uint64{3705, 3711, 3719, 3928} }

// TestServicesHaveWhatTheyRequest checks that during and after every fault a service has the CPU
// that it wants, up to its request, except for one tick, and that all settings are right once the
// fault is over. Each fault is injected SLUICE_SEEDS times in each mode of the pools, from the seed
// SLUICE_SEED on.
func TestServicesHaveWhatTheyRequest(t *testing.T) {
	t.Parallel()
	number := func(name, usual string) uint64 {
		n, err := strconv.ParseUint(cmp.Or(os.Getenv(name), usual), 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	first, seeds := number("SLUICE_SEED", "0"), number("SLUICE_SEEDS", "2")
	for _, f := range faults() {
		for _, mode := range []config.PoolMode{config.Exclusive, config.Overlap} {
			t.Run(fmt.Sprintf("%s, %s", f.name, mode), func(t *testing.T) {
				t.Parallel()
				all := brokenSeeds()
				for i := range seeds {
					all = append(all, first+i)
				}
				for _, seed := range all {
					journal := filepath.Join(t.TempDir(), "originals")
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, &f, mode, seed)
						r.options.Originals = journal
						defer func() { r.leave() }()
						r.play()
						r.right()
					})
				}
			})
		}
	}
}

// rig is a simulation with a fault.
type rig struct {
	*simulation
	*fault
	t          *testing.T
	seed       uint64
	rng        *rand.Rand
	begin, end time.Duration // begin and end of the fault

	beat   time.Duration // time of the loop's last heartbeat
	safe   []knobs.Change
	carry  *failsafe.Report
	acted  int
	frozen time.Time // time at which the clock stands; zero while it runs
	dying  bool
	died   []*container
	unseen time.Duration                // how long nothing has been measured
	lacks  time.Duration                // until when a service that has died is missing
	short  map[*container]time.Duration // how long each container has had too little
}

func newRig(t *testing.T, f *fault, mode config.PoolMode, seed uint64) *rig {
	s := parsed(t, stress)
	r := &rig{fault: f, t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), short: map[*container]time.Duration{}}
	r.begin = rise + time.Duration(r.rng.IntN(21)-10)*step
	r.end = r.begin + f.lasts
	s.Duration = r.end + recovery + settling
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Requests.CPU > 0 {
			p.Load = r.load(p.Requests.CPU, s.Duration-settling)
		}
	}
	sim, err := prepare(s, trial{policy: Pools, vary: 1, tight: 1, budget: always})
	if err != nil {
		t.Fatal(err)
	}
	r.simulation = sim
	sim.config.Pools.Mode = mode
	sim.options.Kernel, sim.options.Failsafe, sim.options.Clock = mortal{sim.node.Kernel, r}, r, r.clock
	return r
}

// load returns a service's random load, between nothing and 1.5 times its request.
func (r *rig) load(request Cores, until time.Duration) Load {
	level := func(at time.Duration, levels ...Percent) Step {
		return Step{At: at, Load: levels[r.rng.IntN(len(levels))]}
	}
	steps := []Step{level(0, 0.02, 0.5, 1.5), level(calm, 0.02, 0.05), level(rise, 1, 1.5)}
	for at := rise + 2*time.Second; at < until; at += time.Duration(1+r.rng.IntN(3)) * time.Second {
		steps = append(steps, level(at, 0.02, 0.3, 0.6, 1, 1.5))
	}
	return Load{Curve: Steps, CPU: request, Steps: append(steps, Step{At: until, Load: 0.02}), Noise: 0.1, Threads: 16}
}

// clock returns the time of the plugin's clock.
func (r *rig) clock() time.Time {
	if !r.frozen.IsZero() {
		return r.frozen
	}
	return r.time()
}

func (r *rig) play() {
	r.kubelet.setUp()
	r.start()
	for now := time.Duration(0); now < r.Duration; now += step {
		active := now >= r.begin && now < r.end
		switch {
		case r.gone && now == r.begin:
			r.leave()
			r.agent, r.kubelet.agent = nil, nil
		case r.gone && now == r.end && !r.forever:
			r.start()
		case r.freezes && now == r.begin:
			r.frozen = r.time()
		case now == r.end:
			r.frozen = time.Time{}
		}
		changed := r.advance(now)
		r.check(now)
		looks := r.agent != nil && (!active || !r.silent)
		if looks && now+step < r.Duration { // the last step shows the effect of earlier decisions only
			r.dying = r.deadly && active
			r.steer(now+step, changed, active)
			r.dying = false
			r.bury(now + step)
		}
		r.watch(now + step)
	}
}

func (r *rig) start() {
	if err := r.manage(); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait() // until the agent has processed the containers that it found
	r.sampler.follow(r.agent.Targets())
}

// steer does what simulation.steer does, with the fault in effect.
func (r *rig) steer(now time.Duration, changed, active bool) {
	at := r.time()
	r.sampler.note(at)
	if changed || now%usageEvery < step {
		r.sampler.follow(r.agent.Targets())
	}
	look := r.sampler.measure(at)
	if active && r.blurs != nil {
		r.blurs(r, look)
	}
	if !r.frozen.IsZero() {
		r.hold(look)
	}
	r.agent.Tick(look)
	if now%r.config.DriftInterval < step {
		r.agent.Pass()
	}
}

// lose removes some or all measurements from a snapshot.
func (r *rig) lose(s *observe.Snapshot) {
	if r.rng.IntN(5) == 0 {
		*s = observe.Snapshot{Now: s.Now}
		r.unseen += step
		return
	}
	r.unseen = 0
	if r.rng.IntN(3) == 0 {
		s.Node.CPU, s.CPUs = observe.NodeCPU{}, nil
	}
	s.Containers = slices.DeleteFunc(s.Containers, func(observe.Container) bool { return r.rng.IntN(3) == 0 })
}

// hold sets the times of a snapshot to that of the stopped clock.
func (r *rig) hold(s *observe.Snapshot) {
	held := func(at *time.Time) {
		if at.After(r.frozen) {
			*at = r.frozen
		}
	}
	held(&s.Now)
	held(&s.Node.CPU.At)
	held(&s.Node.Memory.At)
	held(&s.Node.Pressure.At)
	for i := range s.Containers {
		c := &s.Containers[i]
		for _, at := range []*time.Time{&c.CPU.At, &c.CPU.StatAt, &c.Pressure.At, &c.RunDelay.At, &c.Memory.At} {
			held(at)
		}
	}
}

// mortal is a kernel in which containers can end just before a write to them.
type mortal struct {
	*Kernel
	rig *rig
}

func (k mortal) Apply(changes []knobs.Change) error {
	r := k.rig
	for i := range changes {
		at := slices.IndexFunc(r.node.containers, func(c *container) bool { return c.path == changes[i].Object.Path })
		if r.dying && at >= 0 && r.rng.IntN(10) == 0 && !slices.Contains(r.died, r.node.containers[at]) {
			r.died = append(r.died, r.node.containers[at])
			k.rmdir(changes[i].Object.Path)
		}
	}
	return k.Kernel.Apply(changes)
}

// bury makes the kubelet notice the ended containers; it creates them again.
func (r *rig) bury(now time.Duration) {
	for _, c := range r.died {
		r.node.mkdir(c.path)
		r.kubelet.end(c.pod)
		c.pod.next = now + time.Second
		if c.pod.online() {
			r.lacks = c.pod.next + step
		}
	}
	r.died = nil
}

// Replace, Beat and TakeReport implement the agent's failsafe.
func (r *rig) Replace(changes []knobs.Change) <-chan struct{} { r.safe = changes; return nil }

func (r *rig) Beat() { r.beat = time.Duration(r.now.Load()) }

func (r *rig) TakeReport() (acted failsafe.Report, ok bool) {
	if r.carry == nil {
		return acted, false
	}
	acted, r.carry = *r.carry, nil
	return acted, true
}

// watch carries out the failsafe's plan once, after its time of silence. If the plugin has ended,
// it waits as long for a successor.
func (r *rig) watch(now time.Duration) {
	if now != r.beat+failsafe.Silence {
		return
	}
	r.acted++
	r.carry = &failsafe.Report{Time: r.time(), Why: "silence", Changes: len(r.safe)}
	if err := failsafe.Carry(r.node.Kernel, r.safe); err != nil {
		r.t.Errorf("seed %d: the failsafe's plan: %v", r.seed, err)
	}
}

// check fails the test if a service has less CPU than it may expect.
func (r *rig) check(now time.Duration) {
	allowed := step + r.unseen // one step passes before the load is measured
	if now >= r.begin && now <= r.begin+r.blind() {
		allowed += r.blind()
	}
	enough := 0.97
	if now <= r.lacks {
		// The weight of its QoS class stays, and counts where the class's other pods run. In a pool with as
		// many CPUs as its pods request, these get more than they request, and pods outside of the class less.
		enough = 0.9
	}
	for _, c := range r.node.containers {
		need := min(c.demand, float64(c.Requests.CPU))
		if !c.pod.online() || c.got >= enough*need-0.005 {
			delete(r.short, c)
			continue
		}
		if r.short[c] += step; r.short[c] > allowed {
			r.t.Fatalf("seed %d, %s, fault from %s to %s: for %s %s has had %.2f CPUs or so of the %.2f that it wants and requests; CPUs %s",
				r.seed, now, r.begin, r.end, r.short[c], c.id, c.got, need, r.node.effective(r.node.Kernel.groups[c.path], knobs.CPUs))
		}
	}
}

// right checks the settings at the end, while services have little to do.
func (r *rig) right() {
	if r.acted != r.acts {
		r.t.Errorf("seed %d: the failsafe acted %d times, want %d", r.seed, r.acted, r.acts)
	}
	batch := 0.0
	for _, c := range r.node.containers {
		if !c.pod.online() {
			batch += c.got
			continue
		}
		g := r.node.Kernel.groups[c.path]
		for _, q := range []knobs.CPUQuota{g.quota(), g.parent.quota()} {
			if limit := float64(c.Limits.CPU); !q.Unlimited() && q.Quota.Seconds()/q.Period.Seconds() < limit-0.001 {
				r.t.Errorf("seed %d: %s is left with a quota of %s, its limit is %g CPUs", r.seed, c.id, q, limit)
			}
		}
	}
	if r.forever {
		if floor := float64(r.config.Control.Batch.FloorCPUs); batch == 0 || batch > floor+0.01 {
			r.t.Errorf("seed %d: batch work has %.2f CPUs when the plugin is gone, its floor is %g", r.seed, batch, floor)
		}
		return
	}
	s, err := r.agent.Status()
	if err != nil || s.Counters.Panics > 0 || s.Counters.Drift > 0 {
		r.t.Errorf("seed %d: %d panics, %d drifts, %v", r.seed, s.Counters.Panics, s.Counters.Drift, err)
	}
	if said := r.report.decisions["failsafe act"]; said != r.acts {
		r.t.Errorf("seed %d: the plugin told of the failsafe %d times, want %d", r.seed, said, r.acts)
	}
	have := float64(r.node.machine.Online.Size()) / 2
	if r.config.Pools.Mode == config.Exclusive {
		sum := 0
		for _, p := range s.Pools {
			sum += p.CPUs.Size()
		}
		if have = 0.95 * float64(s.Pools[len(s.Pools)-1].CPUs.Size()); sum != r.node.machine.Online.Size() {
			r.t.Errorf("seed %d: the pools have %d CPUs of %d", r.seed, sum, r.node.machine.Online.Size())
		}
	}
	if batch < have {
		r.t.Errorf("seed %d: batch work has %.2f CPUs again, want %.2f or more", r.seed, batch, have)
	}
	before := r.values()
	r.agent.Pass()
	if after := r.values(); after != before {
		r.t.Errorf("seed %d: what is set is not what the plugin wants:\n%s\nand then\n%s", r.seed, before, after)
	}
}

// values lists the settings of all cgroups.
func (r *rig) values() string {
	var all []string
	for path, g := range r.node.Kernel.groups {
		all = append(all, fmt.Sprint(path, g.values))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
