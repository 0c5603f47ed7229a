package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/runtime"
)

// TestMemoryRounds lets services and batch pods grow, end, crash and return at random on a node
// whose pods may hold 4 GiB together, and reads in the kernel's log who was killed and at whose
// limit. The kernel must kill no batch container at Sluice's limit while batch work may hold more,
// and no service while batch work holds memory. By default it runs the same few rounds each time;
// SLUICE_MEMORY_ROUNDS and SLUICE_MEMORY_SEED set their number and the random choices.
func TestMemoryRounds(t *testing.T) {
	number := func(name string, usual int64) int64 {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			must(t, err)
			return n
		}
		return usual
	}
	rounds, seed := number("SLUICE_MEMORY_ROUNDS", 12), number("SLUICE_MEMORY_SEED", 1)
	t.Logf("%d rounds of seed %d", rounds, seed)
	rt := start(t, runtime.Options{})
	m := &memoryRounds{t: t, rt: rt, random: rand.New(rand.NewPCG(uint64(seed), 0)), services: map[string]*runtime.Pod{}, batch: map[string]*runtime.Pod{}}
	kernelLog(t, m.kernelSays)
	warm := run(t, rt, m.pod("warm", "BE", "exit=0")) // makes the kubelet's cgroups of the classes
	must(t, rt.WritePodsFile(m.file("memory.limit_in_bytes", "memory.max"), strconv.FormatInt(allPods, 10)))
	must(t, warm.Remove())
	m.watch()
	s := loopSluice(t, rt, `defaults: {besteffort: BE}
control:
  mode: preview
  memory: {mode: on}
  eviction: {mode: on, by: cri, coolDown: 1s, memoryPause: 1s, socket: `+rt.Socket()+`}`)
	defer m.report()
	for m.round = range int(rounds) {
		m.act()
		if t.Failed() {
			break
		}
	}
	st := statusOf(t, s)
	if n := st.Counters; n.BatchKills > 0 || n.ServiceKills > 0 || n.Panics > 0 {
		t.Errorf("sluice counts %d forbidden kills of batch work, %d of services, %d panics", n.BatchKills, n.ServiceKills, n.Panics)
	}
	must(t, rt.RemoveAll())
}

const (
	allPods  = 4 << 30
	lookEach = 20 * time.Millisecond
	// late is how long Sluice may take to notice a change: two of its intervals, and as much again
	// on a busy machine.
	late = 4 * time.Second
)

// memoryRounds is a node with services and batch work that come and go at random.
type memoryRounds struct {
	t        *testing.T
	rt       *runtime.Runtime
	random   *rand.Rand
	round    int
	services map[string]*runtime.Pod
	batch    map[string]*runtime.Pod

	mu    sync.Mutex
	looks []memoryLook

	waits, idle                        []time.Duration
	refused, evicted, crashed, allowed int
}

// memoryLook is what the node's cgroups show at one time, in bytes.
type memoryLook struct {
	at           time.Time
	online, held int64 // memory of services and of batch work that is not page cache
	limit        int64 // limit of batch work; 0 for none
}

// may returns the memory that batch work may hold at least beside that much of services: 65 %,
// less the largest headroom.
func (l *memoryLook) may() int64 { return allPods*65/100 - l.online - allPods/10 }

func (m *memoryRounds) pod(name, class string, args ...string) runtime.PodSpec {
	spec := classed(name, class, runtime.Resources{})
	// Pods in kube-system are never evicted by default.
	spec.Namespace = "default"
	if class == "LS" { // its OOM score makes the kernel kill it before a small batch pod
		spec.Containers[0].Resources = runtime.Resources{CPURequest: 200, MemoryRequest: 600 << 20, MemoryLimit: 1400 << 20}
	}
	spec.Containers[0].Args = args
	return spec
}

func (m *memoryRounds) file(v1, v2 string) string {
	if _, err := m.rt.PodsFile(v1); err == nil {
		return v1
	}
	return v2
}

// watch samples the node until the test ends.
func (m *memoryRounds) watch() {
	limit, usage := m.file("memory.limit_in_bytes", "memory.max"), m.file("memory.usage_in_bytes", "memory.current")
	prefix := ""
	if strings.HasPrefix(limit, "memory.limit") {
		prefix = "total_"
	}
	kept := func(read func(string) (string, error)) int64 {
		text, err := read(usage)
		stat, err2 := read("memory.stat")
		bytes, err3 := strconv.ParseInt(text, 10, 64)
		if err := errors.Join(err, err2, err3); err != nil {
			m.t.Error(err)
		}
		for line := range strings.Lines(stat) {
			if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == prefix+"active_file" || name == prefix+"inactive_file" {
				n, _ := strconv.ParseInt(value, 10, 64)
				bytes -= n
			}
		}
		return bytes
	}
	box := func(name string) (string, error) { return m.rt.ClassFile("besteffort", name) }
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(lookEach); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			look := memoryLook{held: kept(box)}
			look.online = max(0, kept(m.rt.PodsFile)-look.held)
			text, _ := box(limit)
			if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < 1<<62 {
				look.limit = n
			}
			look.at = time.Now()
			m.mu.Lock()
			m.looks = append(m.looks, look)
			m.mu.Unlock()
		}
	}()
	m.t.Cleanup(func() { close(done); <-ended })
}

// last returns the samples of the last period d.
func (m *memoryRounds) last(d time.Duration) []memoryLook {
	m.mu.Lock()
	defer m.mu.Unlock()
	from := time.Now().Add(-d)
	at, _ := slices.BinarySearchFunc(m.looks, from, func(l memoryLook, at time.Time) int { return l.at.Compare(at) })
	return slices.Clone(m.looks[at:])
}

// kernelSays processes a line of the kernel's log.
func (m *memoryRounds) kernelSays(line string) {
	if !strings.Contains(line, "oom-kill:") || !strings.Contains(line, m.rt.PodsCgroup()) {
		return
	}
	field := func(name string) string {
		_, rest, _ := strings.Cut(line, ","+name+"=")
		value, _, _ := strings.Cut(rest, ",")
		return value
	}
	at, victim := field("oom_memcg"), field("task_memcg")
	looks := m.last(late)
	if len(looks) == 0 {
		return
	}
	before, batch := looks[len(looks)-1], strings.Contains(victim, "/besteffort/")
	most, held := int64(allPods), int64(0)
	for _, l := range looks {
		most, held = min(most, l.may()), max(held, l.held)
	}
	describe := fmt.Sprintf("round %d: %s at the limit of %s; services hold %d MiB, batch work %d MiB of %d MiB", m.round, victim, at, before.online>>20, before.held>>20, before.limit>>20)
	switch {
	case batch && strings.Contains(at, "/besteffort") && before.limit > 0 && before.limit+allPods/50 < most:
		m.t.Errorf("killed while batch work might hold %d MiB for %v: %s", most>>20, late, describe)
	case !batch && !strings.Contains(at, "/pod") && held > 128<<20:
		m.t.Errorf("a service was killed for what batch work holds: %s", describe)
	default:
		m.mu.Lock()
		m.allowed++
		m.mu.Unlock()
		m.t.Logf("allowed: %s", describe)
	}
}

// act runs a round.
func (m *memoryRounds) act() {
	name := fmt.Sprintf("service-%d", m.random.IntN(3))
	switch pod := m.services[name]; {
	case pod != nil && m.random.IntN(3) == 0:
		m.leave(name, pod)
	case pod == nil && m.random.IntN(2) == 0:
		m.serve(name)
	}
	name = fmt.Sprintf("batch-%d", m.random.IntN(4))
	switch pod := m.batch[name]; {
	case pod == nil:
		m.begin(name)
	case m.random.IntN(4) == 0:
		must(m.t, pod.Remove())
		delete(m.batch, name)
	case m.random.IntN(2) == 0:
		m.crash(name, pod)
	}
	time.Sleep(time.Duration(m.random.IntN(1500)) * time.Millisecond) // a random time of the load, which waits for nothing
}

// serve starts a service that grows, and measures how much longer that takes than alone.
func (m *memoryRounds) serve(name string) {
	const rate = 256 // rate of the probe's ramp in MiB per second
	size := 200 + m.random.IntN(1000)
	pod := run(m.t, m.rt, m.pod(name, "LS", "first", fmt.Sprintf("ramp=%d", size), "sleep"))
	m.services[name] = pod
	_, err := pod.Container("c").First()
	must(m.t, err)
	began := time.Now()
	usage := m.file("memory.usage_in_bytes", "memory.current")
	await(m.t, name+" has its memory", func() bool {
		text, err := pod.File(usage)
		must(m.t, err)
		n, err := strconv.ParseInt(text, 10, 64)
		must(m.t, err)
		if state, err := pod.Container("c").State(); err == nil && state == cri.ContainerState_CONTAINER_EXITED {
			m.t.Fatalf("round %d: %s has ended while it grew", m.round, name)
		}
		return n >= int64(size)<<20
	})
	m.waits = append(m.waits, max(0, time.Since(began)-time.Duration(size)*time.Second/rate))
	if m.random.IntN(8) == 0 { // the service crashes
		must(m.t, pod.Container("c").Crash())
		m.leave(name, pod)
	}
}

// leave ends a service, and measures how long it takes until batch work may have its memory.
func (m *memoryRounds) leave(name string, pod *runtime.Pod) {
	must(m.t, pod.Remove())
	delete(m.services, name)
	began := time.Now()
	await(m.t, "batch work may hold what a service has left", func() bool {
		looks := m.last(3 * lookEach)
		if len(looks) == 0 {
			return false
		}
		l := &looks[len(looks)-1]
		const step = allPods / 40 // the limit follows in steps of 2 % and in whole MiB
		// Without any pod, Sluice sets no limit. Otherwise batch work gets a tenth more than it holds at once.
		return l.limit == 0 || l.limit+step >= min(l.may(), l.held+allPods/10)
	})
	m.idle = append(m.idle, time.Since(began))
}

// begin starts a batch pod that allocates memory as fast as it can.
func (m *memoryRounds) begin(name string) {
	pod, err := m.rt.RunPod(m.pod(name, "BE"))
	must(m.t, err)
	m.batch[name] = pod
	m.start(name, pod)
}

// crash ends a batch container and starts it again.
func (m *memoryRounds) crash(name string, pod *runtime.Pod) {
	if c := pod.Container("c"); c != nil {
		if state, err := c.State(); err == nil && state == cri.ContainerState_CONTAINER_RUNNING {
			m.crashed++
			must(m.t, c.Kill())
			must(m.t, c.Await(cri.ContainerState_CONTAINER_EXITED))
		}
	}
	m.start(name, pod)
}

func (m *memoryRounds) start(name string, pod *runtime.Pod) {
	args := []string{"first", fmt.Sprintf("touch=%d", 32+m.random.IntN(96)), "first"}
	if m.random.IntN(3) == 0 {
		args = append(args, fmt.Sprintf("fill=%d", 32+m.random.IntN(100)))
	}
	args = append(args, fmt.Sprintf("touch=%d", m.random.IntN(1200)), "sleep")
	c, err := pod.Create(runtime.ContainerSpec{Name: "c", Args: args})
	if err == nil {
		err = c.Start()
	}
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "no batch container starts on this node now"), strings.Contains(err.Error(), "no batch work starts"):
		m.refused++
	case strings.Contains(err.Error(), "was evicted"), strings.Contains(err.Error(), "not ready"), strings.Contains(err.Error(), "not running"):
		m.evicted++
		must(m.t, pod.Remove())
		delete(m.batch, name)
	default:
		m.t.Errorf("round %d: %s: %v", m.round, name, err)
	}
}

func (m *memoryRounds) report() {
	of := func(all []time.Duration) string {
		if len(all) == 0 {
			return "never"
		}
		slices.Sort(all)
		return fmt.Sprintf("%d times, median %v, 95 %% %v, longest %v", len(all), all[len(all)/2].Round(time.Millisecond), all[len(all)*95/100].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
	}
	m.t.Logf("services grew %s longer than their ramp takes", of(m.waits))
	m.t.Logf("what they left was nobody's: %s", of(m.idle))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Logf("%d batch containers were refused, %d were evicted before, %d crashed, %d were killed where they might not hold more", m.refused, m.evicted, m.crashed, m.allowed)
}

// kernelLog passes on the lines of the kernel's log from now until the test ends.
func kernelLog(t *testing.T, take func(line string)) {
	t.Helper()
	fd, err := syscall.Open("/dev/kmsg", syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		skip(t, fmt.Errorf("the kernel's log can't be read: %w", err))
	}
	_, err = syscall.Seek(fd, 0, 2) // the end of the log
	must(t, err)
	log := os.NewFile(uintptr(fd), "/dev/kmsg")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			take(lines.Text())
		}
	}()
	t.Cleanup(func() { must(t, log.Close()); <-ended })
}
