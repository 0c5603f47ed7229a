package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestFaults injects faults into a node with real containers that come and go: SLUICE_FAULTS of them,
// chosen by SLUICE_SEED. After each the node comes to rest, and the invariants hold. In the end all is
// given back: pods then have the same settings as the same pods on a node without Sluice.
func TestFaults(t *testing.T) {
	number := func(name string, usual int) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(usual)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	count, seed := number("SLUICE_FAULTS", 8), number("SLUICE_SEED", 1)
	rt := start(t, runtime.Options{})
	for _, request := range []workload.MilliCPU{0, 100} { // the cgroups of both QoS classes stay
		must(t, run(t, rt, classed("first", "LS", runtime.Resources{CPURequest: request})).Remove())
	}
	before, err := rt.ClassSettings()
	must(t, err)
	n := &faultyNode{Rand: rand.New(rand.NewPCG(uint64(seed), 15)), t: t, rt: rt}
	n.s = loopSluice(t, rt, faultConfigs()[0])
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened:\n%s", strings.Join(n.story[max(0, len(n.story)-40):], "\n"))
		}
	})
	kinds := faultKinds()
	counts := map[string]int{}
	for i := range count {
		kind := kinds[i%len(kinds)]
		if i >= len(kinds) {
			kind = kinds[n.IntN(len(kinds))]
		}
		counts[kind.name]++
		n.live()
		pins := n.pinned()
		n.tell("FAULT %d: %s", i, kind.name)
		kind.do(n)
		n.rests(pins)
		if t.Failed() {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%4d × %s", counts[name], name)
	}
	n.givesBack(before)
}

// faultyNode is a node on which things go wrong.
type faultyNode struct {
	*rand.Rand
	t     *testing.T
	rt    *runtime.Runtime
	s     *runtime.Sluice
	pods  []*faultyPod
	made  int // number of pods made so far
	story []string
}

// faultyPod is a pod on such a node.
type faultyPod struct {
	*runtime.Pod
	spec  runtime.PodSpec
	class string
	gone  bool // its removal has failed, or its process was killed
}

func (n *faultyNode) tell(format string, a ...any) {
	n.story = append(n.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, a...))
}

// while lets the node live while something happens, at a random moment.
func (n *faultyNode) while(happens func() error) {
	n.t.Helper()
	after, failed := time.Duration(n.IntN(1200))*time.Millisecond, make(chan error)
	go func() {
		time.Sleep(after)
		failed <- happens()
	}()
	n.live()
	must(n.t, <-failed)
}

// live starts and ends pods. What fails is in the story: the runtime or the plugin may be away.
func (n *faultyNode) live() {
	for range 1 + n.IntN(2) {
		if len(n.pods) < 2 || len(n.pods) < 5 && n.IntN(2) == 0 {
			n.arrive()
		} else {
			n.depart(n.pods[n.IntN(len(n.pods))])
		}
	}
}

func (n *faultyNode) arrive() {
	spec := n.anySpec(fmt.Sprintf("p%d", n.made))
	n.made++
	p := &faultyPod{spec: spec, class: spec.Annotations["class.sluice.dev"]}
	var err error
	p.Pod, err = n.rt.Run(spec)
	n.tell("%s %s arrives: %v", p.class, spec.Name, err)
	if err == nil {
		n.pods = append(n.pods, p)
	}
}

// anySpec is a pod of a class. A node of two CPUs has room for one pin.
func (n *faultyNode) anySpec(name string) runtime.PodSpec {
	all := []runtime.PodSpec{
		classed(name, "LS", runtime.Resources{CPURequest: 300, CPULimit: 1000}),
		classed(name, "LS", runtime.Resources{CPURequest: 200}),
		classed(name, "BE", runtime.Resources{}),
		classed(name, "BE", runtime.Resources{}),
	}
	for i := range all {
		all[i].Containers[0].Args = []string{"first", "burn=1"}
	}
	all[0].Annotations["cpu-burst.sluice.dev"] = "auto"
	all[0].Containers[0].Args = []string{"first", "sleep"}
	if !slices.ContainsFunc(n.pods, func(p *faultyPod) bool { return p.class == "LSR" }) {
		all = append(all, classed(name, "LSR", runtime.Whole(1000, 64*mib)))
	}
	return all[n.IntN(len(all))]
}

func (n *faultyNode) depart(p *faultyPod) {
	err := p.Remove()
	n.tell("%s departs: %v", p.spec.Name, err)
	if p.gone = err != nil; !p.gone {
		n.pods = slices.DeleteFunc(n.pods, func(q *faultyPod) bool { return p == q })
	}
}

// pinned returns the CPUs of the pins that run.
func (n *faultyNode) pinned() map[string]cpuset.Set {
	pins := map[string]cpuset.Set{}
	for _, p := range n.pods {
		if p.class == "LSR" && !p.gone {
			cpus, err := p.Container("c").CPUs()
			must(n.t, err)
			pins[p.spec.Name] = cpus
		}
	}
	return pins
}

// rests waits until the node has come to rest, and checks the invariants. Pins are where they were
// before the fault.
func (n *faultyNode) rests(pins map[string]cpuset.Set) {
	n.t.Helper()
	for _, p := range slices.Clone(n.pods) {
		if p.gone {
			n.depart(p)
		}
	}
	var keep []*runtime.Pod
	for _, p := range n.pods {
		keep = append(keep, p.Pod)
	}
	must(n.t, n.rt.RemoveAll(keep...)) // what was interrupted
	var wrong error
	for deadline := time.Now().Add(patience()); ; time.Sleep(100 * time.Millisecond) {
		if wrong = n.wrong(pins); wrong == nil {
			break
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the node does not come to rest: %v", wrong)
		}
	}
	if strings.Contains(n.s.Log(), "panic") {
		n.t.Error("the plugin panicked")
	}
}

// wrong returns what must not be once the node has come to rest.
func (n *faultyNode) wrong(pins map[string]cpuset.Set) error {
	st, err := n.s.Status()
	if err != nil {
		return err
	}
	errs, err := inconsistencies(n.rt, st)
	if err != nil {
		return err
	}
	if len(st.Containers) != len(n.pods) {
		errs = append(errs, fmt.Errorf("the status has %d containers of %d", len(st.Containers), len(n.pods)))
	}
	for _, c := range st.Containers {
		for _, k := range c.Settings {
			if k.Problem != "" {
				errs = append(errs, fmt.Errorf("%s %s: %s", c.Ref, k.Knob, k.Problem))
			}
		}
	}
	for _, p := range n.pods {
		c := p.Container("c")
		cpus, err := c.CPUs()
		if was, had := pins[p.spec.Name]; err == nil && had && cpus != was {
			err = fmt.Errorf("pin %s was on %s and is on %s", p.spec.Name, was, cpus)
		}
		errs = append(errs, err)
		for _, file := range []func(string) (string, error){c.File, p.File} {
			milli, err := limitOf(file)
			want := p.spec.Containers[0].Resources.CPULimit // 0 for none
			if err == nil && p.class != "BE" && milli >= 0 && (milli < want || want == 0) {
				err = fmt.Errorf("%s may use %s CPUs, its limit is %s", p.spec.Name, milli, want)
			}
			errs = append(errs, err)
		}
	}
	box, err := limitOf(func(name string) (string, error) { return n.rt.ClassFile("besteffort", name) })
	if err == nil && box >= 0 && box < batchFloor {
		err = fmt.Errorf("batch work may use %s CPUs, its floor is %s", box, workload.MilliCPU(batchFloor))
	}
	errs = append(errs, err)
	pids, err := n.s.Failsafes()
	if err == nil && len(pids) != 1 {
		err = fmt.Errorf("%d failsafes run", len(pids))
	}
	return errors.Join(append(errs, err)...)
}

// givesBack ends Sluice and restores everything. Each pod is then compared with a new one of the same
// specification, and the classes with what they were before.
func (n *faultyNode) givesBack(before runtime.Dump) {
	n.t.Helper()
	must(n.t, n.s.Kill())
	pids, err := n.s.Failsafes()
	must(n.t, err)
	_, err = n.s.Restore()
	must(n.t, err)
	for _, p := range n.pods {
		twin := run(n.t, n.rt, p.spec)
		if changed := n.settings(twin).Differences(n.settings(p.Pod)); len(changed) > 0 {
			n.t.Errorf("%s %s is not as without Sluice: %q", p.class, p.spec.Name, changed)
		}
		must(n.t, twin.Remove())
	}
	after, err := n.rt.ClassSettings()
	must(n.t, err)
	if changed := before.Differences(after); len(changed) > 0 {
		n.t.Errorf("the classes are not as before: %q", changed)
	}
	n.t.Logf("%d pods were given back, %d failsafes ran", len(n.pods), len(pids))
}

// settings reads a pod's settings, by paths without the names of the pod and of its container.
func (n *faultyNode) settings(p *runtime.Pod) runtime.Dump {
	n.t.Helper()
	all, err := p.Settings()
	must(n.t, err)
	named := runtime.Dump{}
	for file, text := range all {
		if strings.Contains(file, p.Container("c").ID) {
			named[strings.NewReplacer(p.UID, "POD", p.Container("c").ID, "CONTAINER").Replace(file)] = text
		}
	}
	return named
}
