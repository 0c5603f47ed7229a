package faults

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// history is what a node has had of batch CPU.
type history struct {
	mu    sync.Mutex
	moves []move
}

// move is a change of what a node has.
type move struct {
	at     time.Time
	amount int64 // in thousandths of a CPU; -1 for no such resource
}

// follow records what the node has until the end of the test.
func follow(t *testing.T, client kubernetes.Interface) *history {
	t.Helper()
	h := &history{}
	watching, err := client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for event := range watching.ResultChan() {
			if node, ok := event.Object.(*corev1.Node); ok {
				now := amount(node)
				if event.Type == watch.Deleted {
					now = -1
				}
				h.note(now)
			}
		}
	})
	t.Cleanup(func() { watching.Stop(); running.Wait() })
	return h
}

// last is what the node had last; -1 before the first event.
func (h *history) last() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.moves) == 0 {
		return -1
	}
	return h.moves[len(h.moves)-1].amount
}

func (h *history) note(amount int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.moves); n == 0 || h.moves[n-1].amount != amount {
		h.moves = append(h.moves, move{time.Now(), amount})
	}
}

// all are the changes so far.
func (h *history) all() []move {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]move(nil), h.moves...)
}

// between returns the least and the most that was there at a time from one to the other.
func between(moves []move, from, to time.Time) (least, most int64) {
	first := true
	for i, m := range moves {
		if m.at.After(to) || i+1 < len(moves) && !moves[i+1].at.After(from) {
			continue
		}
		if first {
			least, most, first = m.amount, m.amount, false
		}
		least, most = min(least, m.amount), max(most, m.amount)
	}
	return least, most
}
