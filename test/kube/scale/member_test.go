package scale

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

const (
	statusInterval = 500 * time.Millisecond // at which sluice-kube follows the plugin
	// A status costs sluice-kube 0.1 ms of CPU time, and this process is sluice-kube of all nodes: beyond so many, each
	// one's plugin tells its status less often.
	oftenNodes = 1250
	cpu        = "batch.sluice.dev/cpu"
	memory     = "batch.sluice.dev/memory"
)

// member is one node with its plugin and its sluice-kube.
type member struct {
	name      string
	bound     amounts // what its batch pod has
	publisher *kube.Publisher
	evictor   *kube.Evictor
	events    *kube.Events
	opened    chan struct{} // closed after the first publication

	mu   sync.Mutex
	node *node
	told []offer // as it changed
}

// amounts are CPU in thousandths, and memory in bytes.
type amounts struct{ cpu, memory int64 }

// offer is what a plugin offers from some time on.
type offer struct {
	at time.Time
	amounts
	divisor int64
}

// connect makes the node's sluice-kube, which uses the kubeconfig. It is made as plugins/sluice-kube makes its own, except
// that the plugin is reached by calls instead of a socket. It waits for the plugin from now on.
func (m *member) connect(t testing.TB, kubeconfig string, published func(error)) {
	t.Helper()
	client, err := kube.NewClient(kubeconfig, m.name, "test")
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	m.events = client.Events(log)
	m.publisher = kube.NewPublisher(client, selling.Sluice.Names(), m.events, log)
	opened := sync.OnceFunc(func() { close(m.opened) })
	m.publisher.Published = func(a kube.Attempt) {
		published(a.Err)
		if a.Err == nil {
			opened()
		}
	}
	m.evictor = kube.NewEvictor(client, noOrders{}, m.publisher.Pods(), m.events, log)
	m.evictor.CoolDown = m.publisher.CoolDown
}

// plugins is what the plugins of all nodes have in common.
type plugins struct {
	like    *status.Status // except for what a node measures
	every   time.Duration  // time between two statuses of a plugin
	divisor atomic.Int64   // of all offers; a change is told at once
	late    atomic.Int64   // nanoseconds by which one was late at most: how much this process lacks CPU time
}

// run runs it until the context ends.
func (m *member) run(ctx context.Context, all *plugins) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { m.events.Run(ctx) })
	work.Go(func() { m.publisher.Run(ctx) })
	work.Go(func() { m.evictor.Run(ctx) })
	work.Go(func() { m.plugin(ctx, all) })
}

// plugin tells sluice-kube the status of the plugin, until the context ends.
func (m *member) plugin(ctx context.Context, all *plugins) {
	timer := time.NewTimer(rand.N(statusInterval)) // nodes do not beat together
	defer timer.Stop()
	var told time.Time
	due := time.Now().Add(statusInterval)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(statusInterval)
			now := time.Now()
			all.was(now.Sub(due))
			due = now.Add(statusInterval)
			if divisor := all.divisor.Load(); now.Sub(told) >= all.every-statusInterval/2 || m.latest().divisor != divisor {
				told = now
				_ = m.publisher.Heard(m.next(now, all.like, divisor)) // the amounts are those of a node
			}
		}
	}
}

// was notes by how much a plugin was late.
func (all *plugins) was(late time.Duration) {
	for most := all.late.Load(); int64(late) > most && !all.late.CompareAndSwap(most, int64(late)); most = all.late.Load() {
	}
}

// next takes the measurements that are due, and returns the status, whose offer it notes.
func (m *member) next(now time.Time, like *status.Status, divisor int64) *status.Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := m.node.view.Now.Add(interval); !at.After(now); at = at.Add(interval) {
		m.node.measure(at)
	}
	s := m.node.status(like, divisor)
	is := amounts{int64(s.Loop.Offer.ShortTerm.CPU), s.Loop.Offer.ShortTerm.MemoryBytes}
	if n := len(m.told); n == 0 || m.told[n-1].amounts != is || m.told[n-1].divisor != divisor {
		m.told = append(m.told, offer{now, is, divisor})
	}
	return s
}

// latest is what the plugin has offered last; the zero value if that is nothing yet.
func (m *member) latest() offer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.told) == 0 {
		return offer{}
	}
	return m.told[len(m.told)-1]
}

// most is the most that was offered of each at a time from one to the other.
func (m *member) most(from, to time.Time) (most amounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, o := range m.told {
		if o.at.After(to) || i+1 < len(m.told) && m.told[i+1].at.Before(from) {
			continue
		}
		most = amounts{max(most.cpu, o.cpu), max(most.memory, o.memory)}
	}
	return most
}

// noOrders is a plugin that orders no eviction.
type noOrders struct{}

func (noOrders) Orders(ctx context.Context, connected func(), _ func(evictorder.Order), _ func(error)) error {
	connected()
	<-ctx.Done()
	return ctx.Err()
}

func (noOrders) Answer(context.Context, string, evictorder.Answer) error { return nil }

func (noOrders) SetPods(context.Context, []evictorder.Pod) error { return nil }
