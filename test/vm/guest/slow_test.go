package guest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
)

// held returns how many MiB the containers hold whose pages move or are reclaimed.
func held(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("SLUICE_HOLD"))
	must(t, err)
	return n
}

// testMovingPages moves the pages of a container to another memory node: by hand, which measures
// the kernel's part, and through Sluice, which repairs what another program did to a pin. Sluice's
// answers must not wait for either. The runtime's other work may wait in the kernel: moving a
// container's first process into its cgroup waits for all moving pages, and holds the lock of all
// cgroups meanwhile (cpuset_post_attach in kernel/cgroup/cpuset.c).
func testMovingPages(n *node) {
	t, size := n.t, held(n.t)
	home, away := roomiest(t)
	hold := []string{fmt.Sprintf("touch=%d", size), "first", "sleep"}
	quiet := n.others(nil)

	pod := n.hold(runtime.ContainerSpec{Args: hold}, "class.sluice.dev", "LS")
	c := pod.Container("c")
	must(t, c.WriteFile("cpuset.mems", strconv.Itoa(home)))
	byHand := n.others(&slowWrite{
		make:  func() error { return c.WriteFile("cpuset.mems", strconv.Itoa(away)) },
		begun: func() error { return has(c, "cpuset.mems", strconv.Itoa(away)) },
		ended: func() error { return left(t, c, home, size) },
	})
	must(t, pod.Remove())

	cpu := set(t, nodeFile(home, "cpulist")).First()
	pod = n.hold(runtime.ContainerSpec{Args: hold, Resources: runtime.Whole(milli(1), int64(size+64)*mib)},
		"class.sluice.dev", "LSR", "cpuset.sluice.dev", strconv.Itoa(cpu))
	c = pod.Container("c")
	must(t, has(c, "cpuset.mems", strconv.Itoa(home)))
	bySluice := n.others(&slowWrite{
		before: func() error { // Sluice notices it when no pages move any more
			return errors.Join(n.sluice.Signal(syscall.SIGSTOP), c.WriteFile("cpuset.mems", strconv.Itoa(away)), n.sluice.Signal(syscall.SIGCONT))
		},
		begun: func() error { return has(c, "cpuset.mems", strconv.Itoa(home)) },
		ended: func() error { return left(t, c, away, size) },
	})
	must(t, pod.Remove())
	compare(t, quiet, byHand, bySluice)
}

// testReclaimingLimit lowers memory.high below a container's page cache: by hand, and through a
// change of Sluice's configuration. Before Linux 6.16 the writer reclaims the page cache.
func testReclaimingLimit(n *node) {
	t, size := n.t, held(n.t)
	const request = 64 * mib
	spec := runtime.ContainerSpec{
		Args: []string{fmt.Sprintf("cache=%d", size), "first", "sleep"}, Disk: "/dev/vda",
		Resources: runtime.Resources{CPURequest: 100, MemoryRequest: request, MemoryLimit: 2 * int64(size) * mib},
	}
	lowered := func(c *runtime.Container) error {
		if has(c, "memory.high", "max") == nil {
			return errors.New("memory.high is max")
		}
		return nil
	}
	reclaimed := func(c *runtime.Container) error {
		high, used := number(t, c, "memory.high"), number(t, c, "memory.current")
		if used > high+int64(size)*mib/20 {
			return fmt.Errorf("it uses %d MiB of %d", used/mib, high/mib)
		}
		return nil
	}
	quiet := n.others(nil)

	pod := n.hold(spec, "class.sluice.dev", "LS")
	c := pod.Container("c")
	byHand := n.others(&slowWrite{
		make:  func() error { return c.WriteFile("memory.high", strconv.Itoa(2*request)) },
		begun: func() error { return lowered(c) },
		ended: func() error { return reclaimed(c) },
	})
	must(t, pod.Remove())

	pod = n.hold(spec, "class.sluice.dev", "BE")
	c = pod.Container("c")
	bySluice := n.others(&slowWrite{
		make:  func() error { return n.configure("classes: {BE: {memory-qos: {highPercent: 5}}}\n") },
		begun: func() error { return lowered(c) },
		ended: func() error { return reclaimed(c) },
	})
	must(t, pod.Remove())
	reloads := n.status().Config.Reloads
	must(t, n.configure(""))
	await(t, func() error {
		if n.status().Config.Reloads == reloads {
			return errors.New("the configuration is as it was")
		}
		return nil
	})
	compare(t, quiet, byHand, bySluice)
}

// slowWrite is a write for which the kernel may take long. It has begun once the file has the new
// value, and ended once the kernel has done its work.
type slowWrite struct {
	before       func() error // nil for nothing
	make         func() error // nil if Sluice makes it by itself
	begun, ended func() error
}

// waits holds how long other operations took beside a write.
type waits struct {
	write         time.Duration // the kernel's work for the write
	create, start time.Duration // the longest operations on other pods' containers
	first         time.Duration // the first creation, before any process is moved
	answer        time.Duration // Sluice's longest answer to the runtime, rounded up
	answers       []string      // by event, in total
	cpus, move    time.Duration // by hand: a write of cpuset.cpus, and moving a process to another cgroup
}

func (w waits) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("the kernel took %s; another pod's first creation %s, longest %s, start %s; Sluice's answers at most %s (%s); by hand a write of cpuset.cpus %s, moving a process %s",
		round(w.write), round(w.first), round(w.create), round(w.start), w.answer, strings.Join(w.answers, ", "), round(w.cpus), round(w.move))
}

// others creates and starts containers of another pod while the kernel is busy with the write,
// which may be nil. Some are created while the runtime waits in a start.
func (n *node) others(slow *slowWrite) (w waits) {
	t := n.t
	var asks []ask
	for i := range 4 {
		asks = append(asks, ask{name: fmt.Sprintf("c%d", i), class: "LS"})
	}
	pod := n.pod(asks...)
	by := newHand(t)
	defer by.end()
	before := n.status().Handlers
	made := make(chan error, 1)
	if slow != nil && slow.before != nil {
		must(t, slow.before())
	}
	if slow != nil && slow.make != nil {
		go func() { made <- slow.make() }()
	} else {
		made <- nil
	}
	if slow != nil {
		await(t, slow.begun)
	}
	began := time.Now()
	results := make(chan error, 2)
	go func() { results <- by.writeCPUs(&w.cpus) }()
	go func() { results <- run(pod, asks, &w, by) }()
	if slow != nil {
		await(t, slow.ended)
		w.write = time.Since(began)
	}
	must(t, errors.Join(<-made, <-results, <-results))
	must(t, pod.Remove())
	after := n.status().Handlers
	w.answer = slowest(before, after)
	for i, h := range after {
		if d := h.Sum - before[i].Sum; d > 0 {
			w.answers = append(w.answers, fmt.Sprintf("%s %s", h.Event, d.Round(time.Millisecond)))
		}
	}
	return w
}

// run creates a pod's containers and starts the first one while the others are created. A process
// is moved by hand only after the first creation, because from then on the kernel may delay
// creations, too.
func run(pod *runtime.Pod, asks []ask, w *waits, by *hand) error {
	results := make(chan error, 2)
	for i, a := range asks {
		var c *runtime.Container
		err := timed(&w.create, func() (err error) {
			c, err = pod.Create(runtime.ContainerSpec{Name: a.name})
			return err
		})
		if err != nil {
			return err
		}
		if i == 0 {
			w.first = w.create
			go func() { results <- timed(&w.start, c.Start) }()
			go func() { results <- by.move(&w.move) }()
		}
	}
	return errors.Join(<-results, <-results)
}

// compare logs the times, and fails if Sluice's answers waited for its write, because then they
// take as long as the kernel. Other delays, such as those of a busy host, occur during a write by
// hand as well.
func compare(t *testing.T, quiet, byHand, bySluice waits) {
	t.Helper()
	t.Logf("nothing is written: %s", quiet)
	t.Logf("written by hand: %s", byHand)
	t.Logf("written by Sluice: %s", bySluice)
	if bySluice.write < max(time.Second, 4*byHand.answer) {
		t.Skipf("SKIPPED: the kernel took %s for the write, and answers take up to %s without it: what waits can't be told from what is slow", bySluice.write, byHand.answer)
	}
	if bySluice.answer > bySluice.write/2 {
		t.Errorf("Sluice's answers took up to %s while it wrote, and up to %s while somebody else did: they waited for the kernel", bySluice.answer, byHand.answer)
	}
}

// hold runs a container that holds memory, and returns when it does.
func (n *node) hold(spec runtime.ContainerSpec, keys ...string) *runtime.Pod {
	n.t.Helper()
	spec.Name = "c"
	pod := runtime.PodSpec{Name: "holder", Namespace: "kube-system", Annotations: map[string]string{}, Containers: []runtime.ContainerSpec{spec}}
	for pair := range slices.Chunk(keys, 2) {
		pod.Annotations[pair[0]] = pair[1]
	}
	running, err := n.rt.Run(pod)
	must(n.t, err)
	_, err = running.Container("c").First()
	must(n.t, err)
	return running
}

// configure replaces Sluice's configuration, which Sluice then reloads.
func (n *node) configure(text string) error {
	next := n.sluice.ConfigFile() + ".new"
	return errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, n.sluice.ConfigFile()))
}

// hand does with cgroups of its own what a runtime does.
type hand struct {
	dir string
	cmd *exec.Cmd
}

func newHand(t *testing.T) *hand {
	t.Helper()
	by := &hand{dir: "/sys/fs/cgroup/byhand", cmd: exec.Command("/bin/tools/probe", "sleep")}
	must(t, os.Mkdir(by.dir, 0o755))
	must(t, by.cmd.Start())
	return by
}

func (by *hand) writeCPUs(took *time.Duration) error {
	return timed(took, func() error { return os.WriteFile(filepath.Join(by.dir, "cpuset.cpus"), []byte("0"), 0) })
}

func (by *hand) move(took *time.Duration) error {
	pid := strconv.Itoa(by.cmd.Process.Pid)
	return timed(took, func() error { return os.WriteFile(filepath.Join(by.dir, "cgroup.procs"), []byte(pid), 0) })
}

func (by *hand) end() {
	_ = by.cmd.Process.Kill()
	_ = by.cmd.Wait()
	_ = os.Remove(by.dir)
}

// timed runs a function and keeps the longest time that one took.
func timed(longest *time.Duration, do func() error) error {
	began := time.Now()
	err := do()
	*longest = max(*longest, time.Since(began))
	return err
}

// slowest returns the bound of the slowest answer to creations and starts since before.
func slowest(before, now []status.Handler) time.Duration {
	bounds, longest := status.LatencyBounds(), 0
	for i, h := range now {
		for at := range h.Counts {
			if h.Counts[at] > before[i].Counts[at] && (h.Event == "CreateContainer" || h.Event == "StartContainer") {
				longest = max(longest, at)
			}
		}
	}
	if longest == len(bounds) {
		return time.Hour // above all bounds
	}
	return bounds[longest]
}

// has returns an error if a container's file doesn't have the text.
func has(c *runtime.Container, file, want string) error {
	got, err := c.File(file)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %s, want %s", file, got, want)
	}
	return err
}

// number returns the number of bytes in a container's file.
func number(t *testing.T, c *runtime.Container, file string) int64 {
	t.Helper()
	text, err := c.File(file)
	must(t, err)
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// left returns an error while more than a twentieth of the container's memory is on a node. The
// kernel leaves pages there that are also in use elsewhere.
func left(t *testing.T, c *runtime.Container, node, size int) error {
	if here := pagesOf(t, c)[node]; here > int64(size)*mib/20 {
		return fmt.Errorf("node %d has %d MiB of the container", node, here/mib)
	}
	return nil
}

// roomiest returns the two memory nodes with the most free memory.
func roomiest(t *testing.T) (first, second int) {
	t.Helper()
	free := map[int]int{}
	var nodes []int
	for node := range online(t, "node").All() {
		for line := range strings.Lines(read(t, nodeFile(node, "meminfo"))) {
			if fields := strings.Fields(line); fields[2] == "MemFree:" {
				kib, err := strconv.Atoi(fields[3])
				must(t, err)
				free[node] = kib
			}
		}
		nodes = append(nodes, node)
	}
	slices.SortFunc(nodes, func(a, b int) int { return cmp.Compare(free[b], free[a]) })
	return nodes[0], nodes[1]
}
