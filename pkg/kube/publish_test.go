package kube

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// nodeServer takes what is applied to a node's status, after some failures.
type nodeServer struct {
	mu       sync.Mutex
	failures int
	asked    int
	status   int         // of the answer to a node with a report; 0: it is taken
	node     corev1.Node // of the latest success
}

func (n *nodeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.failures > 0 {
		n.failures--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var node corev1.Node
	if err := json.NewDecoder(r.Body).Decode(&node); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if n.status != 0 && node.Annotations[nodereport.Annotation] != "" {
		w.WriteHeader(n.status)
		return
	}
	n.node = node
	n.node.ResourceVersion = strconv.Itoa(100 + n.asked)
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(&n.node)
}

func (n *nodeServer) requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// followed is a controller that knows all, or nothing.
type followed struct {
	cache.Controller
	synced bool
}

func (f followed) HasSynced() bool { return f.synced }

// openNode returns a publisher of a node that sells, and the API server.
func openNode(t *testing.T, synced bool) (*Publisher, *nodeServer) {
	t.Helper()
	server := &nodeServer{}
	log := logrus.New()
	log.SetOutput(t.Output())
	client := clientOf(t, server)
	p := NewPublisher(client, selling.Sluice.Names(), client.Events(log), log)
	p.start = p.start.Add(-time.Hour)
	p.pods.controller = followed{synced: synced}
	node := nodeWith("5", "4000", "4000")
	names := selling.Sluice.Names()
	for _, name := range names {
		node.Status.Capacity[corev1.ResourceName(name)] = node.Status.Capacity["batch.sluice.dev/cpu"]
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: selling.Ready, Status: corev1.ConditionTrue, Reason: selling.Acting, LastTransitionTime: metav1.Now()})
	p.node.saw(p.node.trim(node))
	p.report = &selling.Report{Connected: true, Stall: time.Hour, Offer: selling.Amounts{4000, 4000, 4000, 4000}}
	p.heard, p.connected = time.Since(p.start), true
	return p, server
}

func (n *nodeServer) reason(kind corev1.NodeConditionType) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.node.Status.Conditions {
		if c.Type == kind {
			return c.Reason
		}
	}
	return ""
}

// The last publication is tried again: otherwise the node would stay open with nobody to close it.
func TestLeave(t *testing.T) {
	t.Parallel()
	p, server := openNode(t, true)
	server.failures, p.retry = 2, time.Hour*2
	p.leave()
	if got := server.reason(selling.BatchOpen); got != selling.Stopping || server.requests() != 3 {
		t.Errorf("the node has %q after %d requests, want %s after 3", got, server.requests(), selling.Stopping)
	}
}

// An API server that refuses the node's report still gets the amounts.
func TestReportIsRefused(t *testing.T) {
	t.Parallel()
	for status, requests := range map[int]int{0: 1, http.StatusForbidden: 2, http.StatusUnprocessableEntity: 2, http.StatusBadRequest: 2, http.StatusServiceUnavailable: 1} {
		p, server := openNode(t, true)
		server.status = status
		p.coolDown.holds = []*hold{{until: time.Now().Add(time.Hour)}}
		p.step(t.Context(), false)
		reason := selling.CoolDown
		if status == http.StatusServiceUnavailable {
			reason = ""
		}
		_, has := server.node.Annotations[nodereport.Annotation]
		if server.requests() != requests || server.reason(selling.BatchOpen) != reason || has != (status == 0) {
			t.Errorf("status %d: the node has %q and the annotations %q after %d requests", status, server.reason(selling.BatchOpen), server.node.Annotations, server.requests())
		}
	}
}

// While the API server is away, one attempt to close does not wait for the next retry.
func TestClosingDoesNotWait(t *testing.T) {
	t.Parallel()
	p, server := openNode(t, true)
	server.failures, p.retry = 1, 2*time.Hour
	step := func(when string, requests int, word string) {
		t.Helper()
		p.step(t.Context(), false)
		if got := server.reason(selling.BatchOpen); server.requests() != requests || got != word {
			t.Errorf("%s: %q after %d requests, want %q after %d", when, got, server.requests(), word, requests)
		}
	}
	step("open", 0, "")
	p.coolDown.holds = []*hold{{until: time.Now().Add(time.Hour)}}
	step("an eviction", 1, "")
	step("after its failure", 1, "")
	p.retry = 0
	step("the next retry", 2, selling.CoolDown)
}

// A node whose pods cannot be read, as without the right to do so, must not go on selling what a
// predecessor has published.
func TestPodsUnknown(t *testing.T) {
	t.Parallel()
	p, server := openNode(t, false)
	p.start, p.heard = time.Now().Add(time.Second-selling.Silence), time.Second
	if p.step(t.Context(), false); server.requests() != 0 {
		t.Errorf("%d requests while the pods may still become known", server.requests())
	}
	p.start = p.start.Add(-time.Second)
	p.step(t.Context(), false)
	if got := server.reason(selling.Ready); got != selling.PodsUnknown || len(server.node.Status.Capacity) != 0 || server.requests() != 1 {
		t.Errorf("the node has %q and %v after %d requests", got, server.node.Status.Capacity, server.requests())
	}
}
