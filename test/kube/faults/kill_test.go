package faults

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
)

const (
	kills     = 100
	mostOffer = 40000           // the offer at first, in thousandths of a CPU
	least     = 100             // what a pod requests
	settle    = 3 * time.Second // within which what happens is known everywhere
)

// TestKills kills sluice-kube again and again, at any time, while pods come and go, the offer falls, and the node orders
// evictions, half of the time in a cool-down. Each publication is right, each order is carried out once, and no other
// pod is evicted.
func TestKills(t *testing.T) {
	t.Parallel()
	audit, flags := audited(t, `{level: Request, resources: [{group: "", resources: [pods/eviction]}]}`)
	c := bed.API(t, flags...)
	w := newWorld(t, c)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w.work(seed)
	began := time.Now()
	for i := range kills {
		switch i % 20 {
		case 0: // a sluice-kube that ended normally opens the node at once when it is back
			w.offer(mostOffer, false)
			if i > 0 {
				program := standin.Run(t, nodeName, w.kubeconfig, w.plugin.Socket)
				time.Sleep(time.Second)
				program.Stop(t)
			}
		case 10:
			w.offer(mostOffer/4, true)
		default:
			w.offer(mostOffer*int64(20-i%20)/20, i%20 > 10)
		}
		program := standin.Run(t, nodeName, w.kubeconfig, w.plugin.Socket)
		time.Sleep(time.Duration(random.Int64N(int64(time.Second))))
		program.Kill()
	}
	t.Logf("%d kills took %v", kills, time.Since(began).Round(time.Second))
	standin.Run(t, nodeName, w.kubeconfig, w.plugin.Socket)
	w.end()
	w.checkPublications()
	w.checkEvictions(audit)
}

// checkPublications checks all that was published against what was offered and bound at that time: the test may know
// later than sluice-kube that a pod has ended.
func (w *world) checkPublications() {
	w.Helper()
	moves := w.published.all()
	for _, m := range moves {
		if m.amount < 0 {
			continue
		}
		from, to := m.at.Add(-settle), m.at.Add(settle)
		bound, _ := between(w.bounds, from, to)
		_, total := between(w.totals, from, to)
		_, offer := between(w.offers, from, m.at)
		if m.amount < bound || m.amount > max(total, offer) {
			w.Errorf("%d was published, with at least %d bound to running pods, at most %d bound and %d offered", m.amount, bound, total, offer)
		}
	}
	w.Logf("%d publications changed the amount", len(moves))
}

// checkEvictions checks by the API server's audit log that each order was carried out, and once.
func (w *world) checkEvictions(audit string) {
	w.Helper()
	accepted := map[types.UID]int{}
	for _, r := range requests(w.T, audit) {
		if o := r.RequestObject.DeleteOptions; r.ResponseStatus.Code == 201 && o != nil && o.Preconditions != nil && len(o.DryRun) == 0 {
			accepted[*o.Preconditions.UID]++
		}
	}
	left := map[types.UID]bool{}
	list, err := w.client.CoreV1().Pods("batch").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		left[list.Items[i].UID] = list.Items[i].DeletionTimestamp == nil
	}
	for uid, err := range w.ordered {
		if err != nil || left[uid] {
			w.Errorf("an order is lost: pod %s stays: %v, and the answer is: %v", uid, left[uid], err)
		}
	}
	for uid, n := range accepted {
		if _, ordered := w.ordered[uid]; !ordered || n > 1 {
			w.Errorf("pod %s was evicted %d times, and ordered: %v", uid, n, ordered)
		}
	}
	w.Logf("%d orders, of which the API server accepted %d", len(w.ordered), len(accepted))
}
