package scale

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// decides bounds the time from what a plugin offers to the time of the publication, beside other work.
const decides = 3 * time.Second

// watcher checks each publication as the scheduler sees it, and knows what each node has.
type watcher struct {
	testing.TB
	members map[string]*member

	mu  sync.Mutex
	has map[string]published
}

// published is what a node object has of Sluice.
type published struct {
	amounts
	reports bool      // it has a report
	open    string    // reason of the condition SluiceBatchOpen; "" if nothing was published
	at      time.Time // full seconds, by the clock of the node
}

// watchNodes follows all nodes until the end of the test.
func watchNodes(t testing.TB, client kubernetes.Interface, members map[string]*member) *watcher {
	w := &watcher{TB: t, members: members, has: map[string]published{}}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &corev1.Node{},
		Transform: func(object any) (any, error) {
			if node, ok := object.(*corev1.Node); ok {
				node.ManagedFields, node.Status.Images = nil, nil
			}
			return object, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: w.saw, UpdateFunc: func(_, now any) { w.saw(now) }},
	})
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { controller.Run(stop) })
	t.Cleanup(func() { close(stop); running.Wait() })
	return w
}

// saw notes what a node has, and checks it if it is new.
func (w *watcher) saw(object any) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	is := published{amounts: amounts{amount(node, cpu), amount(node, memory)}, reports: node.Annotations[nodereport.Annotation] != ""}
	for _, c := range node.Status.Conditions {
		if c.Type == selling.BatchOpen {
			is.open, is.at = c.Reason, c.LastHeartbeatTime.Time
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.has[node.Name]; is != was {
		w.has[node.Name] = is
		if err := is.check(w.members[node.Name]); err != nil {
			w.Error(err)
		}
	}
}

// amount is what a node has in both lists; -1 if they differ.
func amount(node *corev1.Node, name corev1.ResourceName) int64 {
	capacity, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
	if capacity.Cmp(allocatable) != 0 {
		return -1
	}
	return capacity.Value()
}

// check compares a publication with what was offered when it was made, and with what is bound.
func (p published) check(m *member) error {
	if p.open == "" || p.open == selling.Stopping {
		return nil
	}
	if p.open != selling.Selling {
		return fmt.Errorf("%s has closed itself: %s", m.name, p.open)
	}
	offered := m.most(p.at.Add(-decides), p.at.Add(time.Second))
	most := amounts{max(offered.cpu, m.bound.cpu), max(offered.memory, m.bound.memory)}
	if p.cpu < m.bound.cpu || p.memory < m.bound.memory || p.cpu > most.cpu || p.memory > most.memory {
		return fmt.Errorf("%s published %+v, with %+v offered and %+v bound", m.name, p.amounts, offered, m.bound)
	}
	return nil
}

// right tells why a node does not sell what it may: it offers the divided amount, and has what is bound, and not more than a
// tenth above what is offered.
func (p published) right(m *member, divisor int64) error {
	offer := m.latest()
	fits := func(has, offered, bound int64) bool {
		return has >= bound && (has-max(offered, bound))*10 < max(has, 1)
	}
	if p.open != selling.Selling || offer.divisor != divisor || !fits(p.cpu, offer.cpu, m.bound.cpu) || !fits(p.memory, offer.memory, m.bound.memory) {
		return fmt.Errorf("%s has %+v, with %+v offered and %+v bound", m.name, p, offer, m.bound)
	}
	return nil
}

// right tells which nodes are not.
func (w *watcher) right(divisor int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	wrong := 0
	var example error
	for name, m := range w.members {
		if err := w.has[name].right(m, divisor); err != nil {
			wrong, example = wrong+1, err
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d nodes are not right: %w", wrong, len(w.members), example)
	}
	return nil
}

// silent counts the nodes without a report.
func (w *watcher) silent() (nodes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.members {
		if !w.has[name].reports {
			nodes++
		}
	}
	return nodes
}

// What a node must not have is found.
func TestCheck(t *testing.T) {
	t.Parallel()
	begin := time.Now().Truncate(time.Second)
	m := &member{name: "n", bound: amounts{1000, 1 << 30}, told: []offer{
		{begin, amounts{8000, 8 << 30}, 1}, {begin.Add(10 * time.Second), amounts{4000, 4 << 30}, 2}, {begin.Add(20 * time.Second), amounts{500, 1 << 29}, 4},
	}}
	for name, test := range map[string]struct {
		published
		divisor         int64
		wrong, notRight bool // the publication, the node
	}{
		"nothing":                             {published{}, 4, false, true},
		"the offer":                           {published{amounts{8000, 8 << 30}, true, selling.Selling, begin}, 4, false, true},
		"the former offer in the same second": {published{amounts{8000, 8 << 30}, true, selling.Selling, begin.Add(10 * time.Second)}, 4, false, true},
		"the former offer, later":             {published{amounts{8000, 8 << 30}, true, selling.Selling, begin.Add(14 * time.Second)}, 4, true, true},
		"too much memory":                     {published{amounts{4000, 4<<30 + 1}, true, selling.Selling, begin.Add(15 * time.Second)}, 4, true, true},
		"what is bound":                       {published{amounts{1000, 1 << 30}, true, selling.Selling, begin.Add(20 * time.Second)}, 4, false, false},
		"what is bound, told too early":       {published{amounts{1000, 1 << 30}, true, selling.Selling, begin.Add(20 * time.Second)}, 8, false, true},
		"the offer below what is bound":       {published{amounts{500, 1 << 29}, true, selling.Selling, begin.Add(20 * time.Second)}, 4, true, true},
		"closed":                              {published{amounts{1000, 1 << 30}, true, selling.NotReady, begin.Add(20 * time.Second)}, 4, true, true},
		"stopping":                            {published{amounts{1000, 1 << 30}, true, selling.Stopping, begin.Add(20 * time.Second)}, 4, false, true},
	} {
		if err := test.check(m); (err != nil) != test.wrong {
			t.Errorf("%s: the publication: %v", name, err)
		}
		if err := test.right(m, test.divisor); (err != nil) != test.notRight {
			t.Errorf("%s: the node: %v", name, err)
		}
	}
}
