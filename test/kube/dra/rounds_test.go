package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/topology/cpuset"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// rounds is a node on which pods with claims come and go while its programs end and return.
type rounds struct {
	*stand
	random *rand.Rand
	round  int
	// had are the CPUs that each claim was given at first, and orphaned since when a claim that no pod
	// has any more is still prepared.
	had      map[string]cpuset.Set
	orphaned map[string]time.Time
	ran      map[string]bool // containers with claims, by their ID
	ends     map[string]int  // of programs
	kubelet  time.Time       // its last start
	forced   int             // pods deleted by force
	slowest  time.Duration   // until everybody was on CPUs of their own after an event
}

const (
	// settle is how long a container may be on others' CPUs that has started while the plugin was away.
	settle = 20 * time.Second
	// release is how long a claim may stay prepared without its pod. A kubelet that starts does not know
	// a pod that was deleted by force before, and looks for claims of such pods after a minute, and each
	// minute again if sluice-kube or the plugin is away in that moment.
	release = 3 * time.Minute
	// patience is for how long programs end although such a claim is there: then it has to be freed.
	patience = 90 * time.Second
)

// TestRounds lets pods with claims start, crash and end, by force or not, also with claims that no
// container uses, beside pins by annotation and containers that share, while the plugin, sluice-kube, the
// kubelet and containerd end and return at random. After each round no CPU is in two pins, each container
// with a claim is on the CPUs of its claim, which are those that it was given at first, and nothing is held
// that no pod has. At the end all CPUs are back. SLUICE_ROUNDS and SLUICE_SEED set the number of rounds and
// the random choices.
func TestRounds(t *testing.T) {
	number, seed := 10, uint64(1)
	var err, err2 error
	if text := os.Getenv("SLUICE_ROUNDS"); text != "" {
		number, err = strconv.Atoi(text)
	}
	if text := os.Getenv("SLUICE_SEED"); text != "" {
		seed, err2 = strconv.ParseUint(text, 10, 64)
	}
	if err := errors.Join(err, err2); err != nil {
		t.Fatalf("SLUICE_ROUNDS and SLUICE_SEED are numbers: %v", err)
	}
	t.Logf("%d rounds of seed %d", number, seed)
	// A containerd that is killed while it starts a container lists it as created, for minutes.
	config := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(config, []byte("reserveTimeout: 30s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRounds(newStand(t, "--config", config), seed)
	r.awaitSlice(1)
	r.make("neighbour", "", shares, "")
	slices := r.countSlices(t)
	began := time.Now()
	// A busy machine may take several rounds until a container with a claim runs for long enough to be seen.
	for r.round = 0; r.round < number || len(r.ran) == 0 && r.round < 5*number; r.round++ {
		r.act()
		r.check()
		if t.Failed() {
			t.Fatalf("round %d of seed %d", r.round, seed)
		}
		if r.round%50 == 49 {
			t.Logf("round %d after %v: %d claims prepared, %d containers ran with one", r.round+1, time.Since(began).Round(time.Second), len(r.had), len(r.ran))
		}
	}
	took := time.Since(began)
	t.Logf("%d rounds in %v: %d claims prepared, %d containers ran with one; programs ended: %v; %d pods deleted by force", r.round, took.Round(time.Second), len(r.had), len(r.ran), r.ends, r.forced)
	t.Logf("everybody was on CPUs of their own %v after an event at the latest; %.1f changes of the ResourceSlice a minute", r.slowest.Round(time.Millisecond), float64(slices())/took.Minutes())
	if len(r.ran) == 0 {
		t.Error("no container ever ran with a claim")
	}
	r.end()
}

func newRounds(s *stand, seed uint64) *rounds {
	return &rounds{
		stand: s, random: rand.New(rand.NewPCG(seed, 0)),
		had: map[string]cpuset.Set{}, orphaned: map[string]time.Time{}, ran: map[string]bool{}, ends: map[string]int{},
	}
}

// The roles of containers are in their environment, by which the test tells them from other processes.
const (
	claims = "ROLE=claims"
	shares = "ROLE=shares"
	pins   = "ROLE=pins"
)

// make makes a pod of one container, if there is none of its name.
func (r *rounds) make(name, claim, role, cpu string) {
	annotation, container, template, command := "", "", "", "exec sleep infinity"
	if claim != "" {
		template = "resourceClaims: [{name: mine, resourceClaimTemplateName: " + claim + "}]"
	}
	switch role {
	case pins:
		annotation = "class.sluice.dev: LSE"
	case claims:
		container = "claims: [{name: mine}], "
		if r.random.IntN(4) == 0 {
			command = "sleep 0.5; false" // it starts again and again
		}
	}
	if cpu != "" {
		container += fmt.Sprintf("requests: {cpu: %s, memory: 16Mi}, limits: {cpu: %[1]s, memory: 16Mi}", cpu)
	}
	objects, err := bed.Objects(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: 1
  %s
  containers:
  - {name: main, image: %q, command: [sh, -c, %q], env: [{name: ROLE, value: %s}], resources: {%s}}
`, name, annotation, template, bed.Image, command, strings.TrimPrefix(role, "ROLE="), container))
	if err != nil {
		r.Fatal(err)
	}
	var p corev1.Pod
	if err := fromUnstructured(objects[0], &p); err != nil {
		r.Fatal(err)
	}
	_, err = r.Client(r.TB).CoreV1().Pods("default").Create(context.Background(), &p, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // the earlier one still terminates
		r.Fatal(err)
	}
}

// act runs a round: a pod takes another's place, and in most rounds a program ends and returns before,
// while or after that happens.
func (r *rounds) act() {
	when := r.random.IntN(5)
	names := []string{"p0", "p1"}
	r.random.Shuffle(2, func(i, j int) { names[i], names[j] = names[j], names[i] })
	name := names[0]
	if when == 0 {
		r.disturb("sluice", "sluice-kube", "containerd", "kubelet")
	}
	r.delete(name)
	if r.random.IntN(3) == 0 {
		r.delete(names[1])
	}
	if when == 1 { // a kubelet that ends now would keep the claim for a minute
		r.disturb("sluice", "sluice-kube", "containerd")
	}
	switch r.random.IntN(10) {
	case 0:
		r.make(name, "", pins, `"1"`)
	case 1:
		r.make(name, "one-cpu", shares, "100m") // its claim is for nobody
	default:
		r.make(name, "one-cpu", claims, `"1"`)
	}
	if when == 2 {
		r.pause(time.Second)
		r.disturb("sluice", "sluice-kube", "containerd")
	}
	if r.random.IntN(3) > 0 { // otherwise the next round may come before it runs
		running := len(r.ran)
		within(2*time.Second, func() bool { r.containers(); return len(r.ran) > running })
	}
	if when == 3 {
		r.disturb("sluice", "sluice-kube", "containerd", "kubelet")
	}
}

func (r *rounds) pause(most time.Duration) { time.Sleep(time.Duration(r.random.Int64N(int64(most)))) }

// disturb ends one of the programs, half of the time as a crash would, and starts it again at once or
// later. A kubelet that has to look for claims without a pod is left alone, and so is everything once it
// has taken long.
func (r *rounds) disturb(names ...string) {
	name := names[r.random.IntN(len(names))]
	if name == "kubelet" && len(r.orphaned) > 0 {
		return
	}
	for _, since := range r.orphaned {
		if time.Since(since) > patience {
			return
		}
	}
	program := map[string]*bed.Service{"sluice": r.plugin, "sluice-kube": r.kube, "kubelet": r.node.Kubelet, "containerd": r.node.Containerd}[name]
	if r.random.IntN(2) == 0 {
		program.Stop(r.TB)
	} else {
		program.Kill(r.TB)
	}
	if r.random.IntN(2) == 0 {
		r.pause(time.Second)
	}
	program.Start(r.TB)
	r.ends[name]++
	if name == "kubelet" {
		r.kubelet = time.Now()
	}
}

// delete deletes a pod if there is one, half of the time by force: the API server forgets it at once,
// while it still runs.
func (r *rounds) delete(name string) {
	var options metav1.DeleteOptions
	now := int64(0)
	forced := r.random.IntN(2) == 0
	if forced {
		options.GracePeriodSeconds = &now
	}
	err := r.Client(r.TB).CoreV1().Pods("default").Delete(context.Background(), name, options)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		r.Fatal(err)
	case forced:
		r.forced++
	default:
		within(2*time.Second, func() bool {
			_, err := r.Client(r.TB).CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

// within waits for a condition, and goes on without it after that time.
func within(most time.Duration, condition func() bool) {
	for deadline := time.Now().Add(most); !condition() && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
}

// check compares what the plugin has reserved with the specs, the pods and the kernel.
func (r *rounds) check() {
	r.Helper()
	began := time.Now()
	for {
		err := r.wrong()
		if err == nil {
			break
		}
		if time.Since(began) > settle {
			r.Errorf("after %v: %v", settle, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.slowest = max(r.slowest, time.Since(began))
}

// wrong returns what is not yet as it must be. What must never be is reported at once.
func (r *rounds) wrong() error {
	specs := r.specs()
	var taken cpuset.Set
	for uid, cpus := range specs {
		if cpus.Overlaps(taken) {
			r.Errorf("claim %s has CPUs %s, which another claim has as well", uid, cpus)
		}
		taken = cpuset.Union(taken, cpus)
		if first, known := r.had[uid]; known && first != cpus {
			r.Errorf("claim %s has CPUs %s, and was given %s", uid, cpus, first)
		}
		r.had[uid] = cpus
	}
	if err := r.orphans(specs); err != nil {
		return err
	}
	reserved, pinned, err := r.reserved()
	if err != nil {
		return err
	}
	if len(reserved) != len(specs) {
		return fmt.Errorf("the plugin has reserved %v, and there are specs for %v", reserved, specs)
	}
	for uid, cpus := range specs {
		if reserved[uid] != cpus {
			return fmt.Errorf("the plugin has reserved %s for claim %s, and its spec has %s", reserved[uid], uid, cpus)
		}
	}
	all := r.containers()
	for _, c := range all {
		// A pin that was created while the plugin was away shares CPUs if there are none for it.
		if c.role == pins && c.cpus.Size() == 1 && c.cpus.SubsetOf(pinned) {
			if c.cpus.Overlaps(taken) {
				return fmt.Errorf("container %s is pinned to CPUs %s, which a claim has", c.id, c.cpus)
			}
			taken = cpuset.Union(taken, c.cpus)
		}
	}
	for _, c := range all {
		switch c.role {
		case claims:
			if c.cpus != c.given {
				return fmt.Errorf("container %s is on CPUs %s, and was given %s of claim %s when it began", c.id, c.cpus, c.given, c.claim)
			}
		case shares:
			if c.cpus.Overlaps(taken) {
				return fmt.Errorf("container %s shares CPUs, and is on %s; others have %s for themselves", c.id, c.cpus, taken)
			}
		}
	}
	return nil
}

// orphans fails for claims that are prepared long after their pod has gone.
func (r *rounds) orphans(specs map[string]cpuset.Set) error {
	list, err := r.Client(r.TB).ResourceV1().ResourceClaims("default").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for uid := range r.orphaned {
		if _, still := specs[uid]; !still {
			delete(r.orphaned, uid)
		}
	}
	for uid := range specs {
		if slices.ContainsFunc(list.Items, func(c resourceClaim) bool { return string(c.UID) == uid }) {
			continue
		}
		if since, known := r.orphaned[uid]; !known {
			r.orphaned[uid] = time.Now()
		} else if time.Since(since) > release && time.Since(r.kubelet) > release {
			r.Errorf("claim %s is prepared, and its object has been gone for %v", uid, time.Since(since).Round(time.Second))
		}
	}
	return nil
}

// end deletes all pods and waits until nothing is left of their claims.
func (r *rounds) end() {
	r.Helper()
	began := time.Now()
	for _, name := range []string{"p0", "p1"} {
		r.delete(name)
	}
	bed.Await(r.TB, "the end of all claims", func() error {
		reserved, _, err := r.reserved()
		if specs := r.specs(); err == nil && len(reserved)+len(specs) > 0 {
			err = fmt.Errorf("%v are reserved, and there are specs for %v", reserved, specs)
		}
		return err
	})
	bed.Await(r.TB, "the neighbour to have all CPUs back", func() error {
		all := r.containers()
		if len(all) != 1 || all[0].cpus.Size() < 2 {
			return fmt.Errorf("the containers are %+v", all)
		}
		return nil
	})
	r.Logf("all CPUs were back %v after the last round", time.Since(began).Round(time.Millisecond))
	r.awaitSlice(1)
	left, err := os.ReadDir(r.node.Path("/run/cdi"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		r.Errorf("the folder of CDI specs has %v: %v", left, err)
	}
}
