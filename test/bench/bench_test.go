// Package bench measures the plugin over a real NRI socket, beside a plugin that
// does nothing over a socket of the same kind, call by call in turns.
//
//	go test ./test/bench -bench . -benchtime 2000x
package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/sluice-dev/sluice/test/host"
	"github.com/sluice-dev/sluice/test/protocol"
)

var sluice, noop string // binaries, set by TestMain

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice")
	if err == nil {
		defer os.RemoveAll(dir)
		sluice, err = protocol.Build(dir, "plugins/sluice")
	}
	if err == nil {
		noop, err = protocol.Build(dir, "test/bench/noop")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpuinfo)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			fmt.Printf("machine: %d × %s", runtime.NumCPU(), strings.TrimLeft(name, "\t :"))
			break
		}
	}
	return m.Run()
}

// sizes lists the machines and their numbers of containers.
var sizes = []struct {
	cpus, containers int
	machine          string
}{
	{16, 12, "1 package 1 node 8 cores 2 threads"},
	{256, 200, "2 packages 1 node 64 cores 2 threads l3 4 cores"},
	{512, 400, "2 packages 4 nodes 32 cores 2 threads l3 8 cores"},
}

// side is a runtime with one plugin.
type side struct {
	*protocol.Runtime
	plugin *protocol.Plugin
	pod    *api.PodSandbox
	total  []time.Duration // duration of each call as seen by the runtime
	took   []time.Duration // duration of the plugin's answers alone
}

func newSide(b *testing.B, containers int, annotations map[string]string, qos string) *side {
	s := &side{Runtime: protocol.New(b)}
	s.Latency = func(_, _ string, took time.Duration) { s.took = append(s.took, took) }
	s.populate(b, containers)
	pod, err := s.RunPod(protocol.Pod{Name: "measured", QoS: qos, Annotations: annotations})
	if err != nil {
		b.Fatal(err)
	}
	s.pod = pod
	return s
}

func (s *side) populate(b *testing.B, containers int) {
	var pod *api.PodSandbox
	for i := range containers {
		if i%2 == 0 {
			var err error
			if pod, err = s.RunPod(protocol.Pod{Name: fmt.Sprintf("pod-%d", i)}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := s.Run(pod, fmt.Sprintf("c%d", i), protocol.Requests{CPU: 100, Memory: 64 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

func (s *side) launch(b *testing.B, machine string) {
	b.Helper()
	if machine == "" {
		var err error
		if s.plugin, err = s.Launch(b, noop, "-socket", s.Socket); err != nil {
			b.Fatal(err)
		}
		return
	}
	s.plugin = s.Sluice(b, sluice, s.Host(b, machine), "")
}

// life runs a container's create, start, stop and remove. The removal is not measured.
func (s *side) life(b *testing.B, q protocol.Requests) {
	began := time.Now()
	c, err := s.Create(s.pod, "measured", q)
	created := time.Now()
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Start(c); err != nil {
		b.Fatal(err)
	}
	started := time.Now()
	if err := s.Stop(c); err != nil {
		b.Fatal(err)
	}
	s.total = append(s.total, created.Sub(began), started.Sub(created), time.Since(started))
	measured := len(s.took)
	if err := s.Remove(c); err != nil {
		b.Fatal(err)
	}
	s.took = s.took[:measured]
}

// BenchmarkShared measures the life of a container that shares CPUs.
func BenchmarkShared(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cpus=%d/containers=%d", size.cpus, size.containers), func(b *testing.B) {
			floor, ours := compare(b, size.machine, size.containers, protocol.Requests{CPU: 100, Memory: 64 << 20}, nil, "burstable")
			report(b, "total", floor.total, ours.total)
			report(b, "handler", floor.took, ours.took)
		})
	}
}

// BenchmarkPin measures the creation of an LSE container, whose CPUs all others leave, and what
// each of the others adds.
func BenchmarkPin(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cpus=%d/evacuates=%d", size.cpus, size.containers), func(b *testing.B) {
			lse := map[string]string{"class.sluice.dev": "LSE"}
			floor, ours := compare(b, size.machine, size.containers, protocol.Requests{CPU: 4000, Memory: 1 << 30}, lse, "guaranteed")
			f, o := creates(floor.took), creates(ours.took)
			report(b, "create", f, o)
			b.ReportMetric(float64((quantile(o, 50)-quantile(f, 50)).Nanoseconds())/1000/float64(size.containers), "µs/evacuated")
		})
	}
}

func compare(b *testing.B, machine string, containers int, q protocol.Requests, annotations map[string]string, qos string) (floor, ours *side) {
	floor = newSide(b, containers, annotations, qos)
	floor.launch(b, "")
	ours = newSide(b, containers, annotations, qos)
	ours.launch(b, machine)
	alternate(b, floor, ours, q)
	return floor, ours
}

// alternate measures lives of containers on both sides in turns, after some to warm up.
func alternate(b *testing.B, floor, ours *side, q protocol.Requests) {
	sides := []*side{floor, ours}
	const warm = 50
	for i := range warm + b.N {
		if i == warm {
			floor.total, floor.took, ours.total, ours.took = nil, nil, nil, nil
			b.ResetTimer()
		}
		slices.Reverse(sides)
		for _, s := range sides {
			s.life(b, q)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// creates returns the first of each life's three calls.
func creates(took []time.Duration) (first []time.Duration) {
	for i := 0; i < len(took); i += 3 {
		first = append(first, took[i])
	}
	return first
}

// report reports the quantiles in microseconds and their ratios to those of the floor.
func report(b *testing.B, what string, floor, ours []time.Duration) {
	slices.Sort(floor)
	slices.Sort(ours)
	for _, percent := range []int{50, 99} {
		f, o := quantile(floor, percent), quantile(ours, percent)
		b.ReportMetric(float64(f.Nanoseconds())/1000, fmt.Sprintf("%s-p%d-noop-µs", what, percent))
		b.ReportMetric(float64(o.Nanoseconds())/1000, fmt.Sprintf("%s-p%d-µs", what, percent))
		b.ReportMetric(float64(o)/float64(f), fmt.Sprintf("%s-p%d-ratio", what, percent))
	}
}

func quantile[T any](sorted []T, percent int) T {
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

// BenchmarkSynchronize measures the connection of a plugin to a runtime with 10,000 containers,
// from the start of its process.
func BenchmarkSynchronize(b *testing.B) {
	r := protocol.New(b)
	var took []time.Duration
	r.Latency = func(_, operation string, d time.Duration) {
		if operation == "Synchronize" {
			took = append(took, d)
		}
	}
	(&side{Runtime: r}).populate(b, 10000)
	host := r.Host(b, sizes[2].machine)
	var floor, ours []time.Duration
	sync := func(launch func() *protocol.Plugin) time.Duration {
		took = nil
		launch().Kill()
		var sum time.Duration
		for _, d := range took {
			sum += d
		}
		return sum
	}
	b.ResetTimer()
	for b.Loop() {
		floor = append(floor, sync(func() *protocol.Plugin {
			p, err := r.Launch(b, noop, "-socket", r.Socket)
			if err != nil {
				b.Fatal(err)
			}
			return p
		}))
		ours = append(ours, sync(func() *protocol.Plugin { return r.Sluice(b, sluice, host, "") }))
	}
	slices.Sort(floor)
	slices.Sort(ours)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(quantile(floor, 50).Milliseconds()), "noop-ms")
	b.ReportMetric(float64(quantile(ours, 50).Milliseconds()), "sluice-ms")
	b.ReportMetric(float64((quantile(ours, 50) - quantile(floor, 50)).Milliseconds()), "beyond-ms")
}

// BenchmarkMemory measures the memory of the processes with 500 containers, after the lives of 100
// more.
func BenchmarkMemory(b *testing.B) {
	for _, who := range []struct{ name, machine string }{{"noop", ""}, {"sluice", sizes[2].machine}} {
		s := newSide(b, 500, nil, "burstable")
		s.launch(b, who.machine)
		for range 100 {
			s.life(b, protocol.Requests{CPU: 100})
		}
		b.ReportMetric(measure(b, 0, s.plugin.PID())[0].MiB(), who.name+"-MiB")
	}
	b.ReportMetric(0, "ns/op")
}

// measure returns what processes need in this time.
func measure(b *testing.B, length time.Duration, pids ...int) []host.Use {
	b.Helper()
	uses, err := host.Measure(length, pids...)
	if err != nil {
		b.Fatal(err)
	}
	return uses
}
