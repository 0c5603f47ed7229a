package guest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/vm/boot"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// numaValues are the chart's. What the loop measures takes time of an emulated node.
const numaValues = `
image: {repository: localhost/sluice/sluice, tag: latest}
mode: "on"
kube: {enabled: true, dra: {enabled: true}}
config: |
  control: {mode: "off", fastInterval: 1s, interval: 2s}
`

// Each NUMA node of the guest has four cores of two threads.
var numaMachine = boot.Topology{Sockets: 2, Dies: 2, Cores: 4, Threads: 2, Memory: 1536}

// empty is what claims can have of each NUMA node while nobody has any of it: all but a core, which stays with the pools.
var empty = map[int]int64{0: 6, 1: 8, 2: 8, 3: 8}

const nicsUnit = `[Unit]
DefaultDependencies=no
[Service]
Environment=PATH=/bin GOMAXPROCS=2
ExecStart=/bin/nics g1 2 3
StandardOutput=append:/var/log/nics.log
StandardError=append:/var/log/nics.log
`

// TestNUMAClaims follows claims on a node with four NUMA nodes, from the scheduler to the cpusets of the kernel: on an
// empty node, on one whose NUMA nodes are used by pins, with CPUs that come online, and together with the devices of
// another driver.
func TestNUMAClaims(t *testing.T) {
	if os.Getenv("SLUICE_GUEST_NODE") == "" {
		t.Skip("SKIPPED: with SLUICE_GUEST_NODE=1 it boots a guest with 32 CPUs, and takes 10 minutes")
	}
	if v := bed.Version(); v == "1.34" || v == "1.35" {
		t.Skip("SKIPPED: DRAConsumableCapacity is off before Kubernetes 1.36")
	}
	s := newNUMASession(t)
	s.awaitDevices(t, empty)
	t.Run("the seventh claim waits until one ends", s.fill)
	t.Run("a claim has memory of its socket", s.large)
	t.Run("a claim owns the threads of its cores that come online", s.offline)
	t.Run("pins have parts of NUMA nodes", s.fragments)
	t.Run("a claim has CPUs of two NUMA nodes", s.spread)
	t.Run("a claim has a network card and CPUs of its NUMA node", s.besideACard)
}

func newNUMASession(t *testing.T) *numaSession {
	t.Helper()
	nics := filepath.Join(t.TempDir(), "nics")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", nics, "./nics")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := bed.API(t)
	c.HighWeight(t)
	s := &numaSession{placed: map[string]place{}}
	s.session = &session{Cluster: c, node: c.Guest(t, nodeName, bed.Equipment{
		Machine: numaMachine,
		Images:  []string{"../../../bin/sluice-image.tar"},
		Files:   map[string]string{"bin/nics": nics},
		Texts:   map[string]string{"etc/systemd/system/nics.service": nicsUnit},
	})}
	for i := range numaMachine.Sockets * numaMachine.Dies {
		cpus, err := cpuset.Parse(strings.TrimSpace(s.node.Run(t, fmt.Sprintf("cat /sys/devices/system/node/node%d/cpulist", i))))
		if err != nil || cpus.Size() != numaMachine.Cores*numaMachine.Threads {
			t.Fatalf("NUMA node %d has CPUs %s, want %d: %v", i, cpus, numaMachine.Cores*numaMachine.Threads, err)
		}
		s.numa = append(s.numa, cpus)
	}
	began := time.Now()
	s.Namespace(t, namespace, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	s.helm(t, numaValues, "install", "sluice", "CHART", "--wait", "--timeout", "5m")
	t.Logf("Sluice is installed after %s", time.Since(began).Round(100*time.Millisecond))
	for _, n := range []int{2, 4, 6} {
		s.Apply(t, template(n))
	}
	return s
}

// fill makes claims until no NUMA node has the CPUs of another, and then takes all that is left.
func (s *numaSession) fill(t *testing.T) {
	sizes := []int{2, 4, 6, 6, 6, 2}
	for i, cpus := range sizes {
		s.bound(t, fmt.Sprintf("claim-%d", i), cpus)
	}
	left := maps.Clone(empty)
	for i, cpus := range sizes {
		left[s.awaitPlaced(t, fmt.Sprintf("claim-%d", i)).node] -= int64(cpus)
	}
	s.alone(t)
	s.awaitDevices(t, empty)
	if slices.Max(slices.Collect(maps.Values(left))) > 2 {
		t.Fatalf("the scheduler has left %v of the NUMA nodes, and takes the first that fits elsewhere", left)
	}
	s.claim(t, "claim-6", 4)
	s.awaitRefused(t, "claim-6")

	had := s.placed["claim-3"]
	began := time.Now()
	s.end(t, "claim-3")
	gone := time.Now()
	has := s.awaitPlaced(t, "claim-6")
	if has.node != had.node {
		t.Errorf("the seventh claim is in NUMA node %d, and four CPUs were free in NUMA node %d alone", has.node, had.node)
	}
	t.Logf("the seventh pod was ready %s after another was deleted, and %s after it was gone", time.Since(began).Round(100*time.Millisecond), time.Since(gone).Round(100*time.Millisecond))
	left[has.node] += 6 - 4
	s.takeAll(t, slices.Collect(maps.Values(left)))
	s.alone(t)
	s.renewPlugin(t)
	s.alone(t)
	s.awaitDevices(t, empty)
	s.endAll(t)
}

// large requests more memory than a NUMA node has.
func (s *numaSession) large(t *testing.T) {
	s.claimWith(t, "large", 4, "2Gi")
	s.awaitPlaced(t, "large")
	s.endAll(t)
}

// offline takes the second threads of two cores away before a claim gets all that is left of their NUMA node. They are the
// claim's when they are back.
func (s *numaSession) offline(t *testing.T) {
	whole := s.numa[1]
	half := whole
	for i := range 2 {
		half.Remove(whole.First() + 2*i + 1)
	}
	away := strings.ReplaceAll(cpuset.Difference(whole, half).String(), ",", " ")
	s.claim(t, "first", 6)
	s.awaitPlaced(t, "first")
	s.node.Run(t, "for cpu in "+away+"; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done")
	s.awaitDevices(t, map[int]int64{0: 6, 1: 6, 2: 8, 3: 8})
	s.claim(t, "owner", 6)
	if has := s.awaitPlaced(t, "owner"); has.cpus != half {
		t.Fatalf("the claim has CPUs %s, want %s", has.cpus, half)
	}
	s.node.Run(t, "for cpu in "+away+"; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done")
	owner := s.placed["owner"]
	bed.Await(t, "the claim to have the CPUs that are back", func() error {
		if now := s.cpusets(t)[owner.id]; now[0] != whole.String() {
			return fmt.Errorf("it has %s", now[0])
		}
		return nil
	})
	owner.cpus = whole
	s.placed["owner"] = owner
	s.alone(t)
	s.endAll(t)
	s.awaitDevices(t, empty)
}

// fragments lets pins leave four CPUs in the NUMA nodes 0 and 2 alone. A pin of five CPUs also keeps the sixth, which is
// half of a core, from claims.
func (s *numaSession) fragments(t *testing.T) {
	s.pinned(t, "lse-1", "LSE", 1, 6)
	s.pinned(t, "lse-2", "LSE", 2, 4)
	s.pinned(t, "lsr-3", "LSR", 3, 5)
	s.awaitDevices(t, map[int]int64{0: 6, 1: 2, 2: 4, 3: 2})
	s.bound(t, "first", 4)
	s.bound(t, "second", 4)
	first, second := s.awaitPlaced(t, "first"), s.awaitPlaced(t, "second")
	if min(first.node, second.node) != 0 || max(first.node, second.node) != 2 {
		t.Errorf("the claims are in NUMA nodes %d and %d, and 0 and 2 alone have four CPUs", first.node, second.node)
	}
	s.claim(t, "third", 4)
	s.awaitRefused(t, "third")
	s.end(t, "lse-1")
	if third := s.awaitPlaced(t, "third"); third.node != 1 {
		t.Errorf("the third claim is in NUMA node %d, and 1 alone has four CPUs", third.node)
	}
	s.takeAll(t, []int64{4, 2, 2})
	s.alone(t)
	s.awaitDevices(t, map[int]int64{0: 6, 1: 8, 2: 4, 3: 2})
	s.endAll(t)
}

// spread applies the example of the documentation for a claim in two NUMA nodes. Both could be the same, by their CPUs.
func (s *numaSession) spread(t *testing.T) {
	s.Apply(t, documented(t, "distinctAttribute", "solver"))
	pod := s.AwaitReady(t, "default", "solver")
	has := place{id: path.Base(s.node.Cgroup(t, pod, "main"))}
	files := s.cpusets(t)[has.id]
	var err error
	if has.cpus, err = cpuset.Parse(files[0]); err != nil {
		t.Fatal(err)
	}
	var halves cpuset.Set
	for i, cpus := range s.numa {
		if cpuset.IntersectSize(cpus, has.cpus) == 4 {
			halves.Add(i)
		}
	}
	if halves.Size() != 2 || has.cpus.Size() != 8 || files[1] != halves.String() {
		t.Errorf("the pod has CPUs %s and memory of NUMA nodes %s, want four CPUs of each of two NUMA nodes, and their memory", has.cpus, files[1])
	}
	t.Logf("the pod has CPUs %s and memory of NUMA nodes %s", has.cpus, files[1])
	s.placed["solver"] = has
	s.alone(t)
	s.endAll(t)
}

// besideACard applies the example of the documentation on a node with cards in the NUMA nodes 2 and 3.
func (s *numaSession) besideACard(t *testing.T) {
	s.node.Run(t, "systemctl start nics")
	s.Apply(t, `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nics.example.com}
spec: {selectors: [{cel: {expression: device.driver == 'nics.example.com'}}]}
`)
	example := documented(t, "matchAttribute", "router")
	s.Apply(t, example)
	first := s.awaitPlaced(t, "router")
	s.Apply(t, strings.NewReplacer("router", "router-b", "nic-and-cpus", "nic-and-six-cpus", `"4"`, `"6"`).Replace(example))
	second := s.awaitPlaced(t, "router-b")
	for name, has := range map[string]place{"router": first, "router-b": second} {
		if want := fmt.Sprintf("nic%d", has.node); has.card != want {
			t.Errorf("pod %s has CPUs of NUMA node %d and card %q", name, has.node, has.card)
		}
	}
	s.alone(t)
	s.endAll(t)

	// All cards are free, and so are six CPUs of each NUMA node but that of the card.
	s.pinned(t, "lse-2", "LSE", 2, 4)
	after := maps.Clone(empty)
	after[2] = 4
	s.awaitDevices(t, after)
	s.Apply(t, strings.NewReplacer("router", "router-c", "nic-and-cpus", "second-nic-and-cpus", `"4"`, `"6"`,
		"{deviceClassName: nics.example.com}", `{deviceClassName: nics.example.com, selectors: [{cel: {expression: "device.attributes['resource.kubernetes.io'].numaNode == 2"}}]}`).Replace(example))
	s.awaitRefused(t, "router-c")
	s.end(t, "lse-2")
	if third := s.awaitPlaced(t, "router-c"); third.node != 2 || third.card != "nic2" {
		t.Errorf("the claim has CPUs of NUMA node %d and card %q, and asks for card nic2", third.node, third.card)
	}
	s.alone(t)
	s.endAll(t)
}

// documented is the example of docs/dra.md with that word, with the image of the test in place of its own.
func documented(t *testing.T, word, image string) string {
	t.Helper()
	const page = "../../../docs/dra.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := markdown.Parse(page, string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range parsed.Blocks {
		if strings.Contains(block.Text, word) {
			return strings.Replace(block.Text, "    image: "+image+"\n", fmt.Sprintf("    image: %q\n    command: %s\n", bed.Image, shows), 1)
		}
	}
	t.Fatalf("%s has no example with %s", page, word)
	return ""
}
