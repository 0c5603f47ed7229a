// Package scale tests how many nodes one API server carries. Each node runs what sluice-kube runs, with a connection and a
// token of its own, beside a plugin that the test makes up.
package scale

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

func TestMain(m *testing.M) { os.Exit(bed.Main(m)) }

const (
	wave = 200             // nodes that start at a time: this machine has the CPUs of one node
	away = 5 * time.Second // for which there is no API server
)

// setting is the number or the time that an environment variable has.
func setting[T any](t *testing.T, name string, otherwise T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return value
}

// stand is an API server with its nodes.
type stand struct {
	*testing.T
	cluster *bed.Cluster
	server  server
	watcher *watcher
	members map[string]*member
	plugins plugins
	counted sample  // at the end of the latest phase
	kept    float64 // watches of nodes and pods that are not those of the nodes

	mu     sync.Mutex
	taken  int            // publications
	latest time.Time      // of them
	failed map[string]int // publications, by reason
}

// TestManyNodes starts nodes, lets them be calm, halves all offers at once, and ends the API server and starts it anew while
// the offers fall again. No node ever has more than it may sell, nor less than its pods have. SLUICE_NODES is the number
// of nodes, and SLUICE_CALM the time of calm.
func TestManyNodes(t *testing.T) {
	nodes := setting(t, "SLUICE_NODES", 60, strconv.Atoi)
	calm := setting(t, "SLUICE_CALM", 5*time.Second, time.ParseDuration)
	klog.LogToStderr(false) // each node would log that the API server is away
	klog.SetOutput(io.Discard)
	c := bed.API(t)
	s := &stand{T: t, cluster: c, server: newServer(t, c), members: map[string]*member{}, failed: map[string]int{}}
	s.plugins.like, s.plugins.every = statustest.Selling(time.Now()), statusInterval*time.Duration(max(1, nodes/oftenNodes))
	s.plugins.divisor.Store(1)
	places := makePlaces(t, c, nodes)
	for i, p := range places {
		s.members[p.name] = &member{name: p.name, bound: p.bound, node: newNode(uint64(i), time.Now()), opened: make(chan struct{})}
	}
	s.watcher = watchNodes(t, c.Client(t), s.members)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })

	mostCalm := 10 + nodes*mostInCalm*int(calm/time.Second)/ofNodes // some come together
	s.counted = *s.sample()
	s.kept = s.counted.watches
	s.phase("start", nodes+mostCalm, func(*sample) {
		for first := 0; first < nodes; first += wave {
			now := places[first:min(first+wave, nodes)]
			for _, p := range now {
				m := s.members[p.name]
				m.connect(t, c.Kubeconfig(t, p.name, p.config(c.Admin())), s.published)
				running.Go(func() { m.run(ctx, &s.plugins) })
			}
			for _, p := range now {
				bed.Await(t, p.name+" to open", func() error {
					select {
					case <-s.members[p.name].opened:
						return nil
					default:
						return bed.ErrNotYet
					}
				})
			}
		}
		s.right(1)
	})
	s.phase("calm", mostCalm, func(*sample) { time.Sleep(calm) })
	s.phase("storm", 2*nodes, func(began *sample) {
		s.plugins.divisor.Store(2)
		s.right(2)
		t.Logf("the last publication came after %v", s.last(began.at))
	})
	s.phase("calm after the storm", mostCalm, func(*sample) { time.Sleep(calm) })
	c.APIServer.Kill(t)
	s.plugins.divisor.Store(4)
	time.Sleep(away)
	s.phase("return of the API server", 2*nodes, func(began *sample) {
		*began = sample{at: time.Now()} // its counters begin anew
		c.APIServer.Start(t)
		t.Logf("the API server is ready %v after its start", time.Since(began.at).Round(100*time.Millisecond))
		s.right(4)
		t.Logf("the last publication came %v after its start", s.last(began.at))
		s.watching()
		t.Logf("all nodes watch %v after its start", time.Since(began.at).Round(100*time.Millisecond))
	})
}

// phase does something, in which the nodes may publish so often, and tells what it cost the API server and this process.
func (s *stand) phase(name string, most int, do func(began *sample)) {
	s.Helper()
	before, own := s.counted, ownCPU(s)
	before.at = time.Now()
	do(&before)
	after := s.sample()
	s.counted = *after
	s.Logf("%s of %d nodes: %s; this process: %.1f %% of a CPU", name, len(s.members), after.since(&before), 100*(ownCPU(s)-own).Seconds()/after.at.Sub(before.at).Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logf("%d publications were taken; failed: %v; a plugin told its status at most %v late", s.taken, s.failed, time.Duration(s.plugins.late.Swap(0)).Round(time.Millisecond))
	if s.taken > most {
		s.Errorf("the nodes published %d times, want %d at most", s.taken, most)
	}
	s.taken, s.failed = 0, map[string]int{}
	if n := s.watcher.silent(); n > 0 {
		s.Logf("%d nodes have no report", n)
	}
}

func (s *stand) sample() *sample {
	s.Helper()
	is, err := s.server.sample(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return is
}

// ownCPU is the CPU time of this process, which is all nodes.
func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// published counts a publication.
func (s *stand) published(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch reason := apierrors.ReasonForError(err); {
	case err == nil:
		s.taken++
		s.latest = time.Now()
	case reason != "":
		s.failed[string(reason)]++
	default:
		s.failed["no answer"]++
	}
}

// right waits until each node sells what it may.
func (s *stand) right(divisor int64) {
	s.Helper()
	bed.Await(s, "all nodes to be right", func() error { return s.watcher.right(divisor) })
}

// last is how long after a time the latest publication was taken.
func (s *stand) last(after time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest.Sub(after).Round(10 * time.Millisecond)
}

// watching waits until each node watches its object and its pods.
func (s *stand) watching() {
	s.Helper()
	bed.Await(s, "all nodes to watch", func() error {
		if n := s.sample().watches - s.kept; int(n) < 2*len(s.members) {
			return fmt.Errorf("%.0f watches run", n)
		}
		return nil
	})
}
