package evict_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/kube"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

const batchCPU = "batch.sluice.dev/cpu"

// TestCoolDown follows what a node sells while a pod is evicted. There is no kubelet, so that the pod goes on ending.
func TestCoolDown(t *testing.T) {
	s := newStand(t, bed.API(t))
	s.sell()
	s.cpu("the offer", 4000)
	evicted, stays := s.batchPod("evicted", 1500), s.batchPod("stays", 1000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	err := evict.Kubernetes{Orders: s.link}.Evict(ctx, evict.Pod{
		UID: string(evicted.UID), Ref: "batch/evicted", Why: "memory is short", DecidedAt: began, CoolDown: began.Add(time.Hour),
	})
	if err != nil || !s.isEnding(evicted) || s.isEnding(stays) {
		t.Fatal(err, s.isEnding(evicted), s.isEnding(stays))
	}
	s.cpu("while the pod ends, its successor has no room", 1000)
	t.Logf("the room of the evicted pod was gone %v after the order", time.Since(began).Round(time.Millisecond))
	s.cpu("a pod that does not end counts again", 2500)
	if took := time.Since(began); took < 15*time.Second {
		t.Errorf("it counts again after %v", took)
	}
	s.remove("evicted")
	began = time.Now()
	s.cpu("once it has ended", 1000)
	t.Logf("the room of a pod that has ended was gone after %v", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("its room was there for %v", took)
	}
}

// sell runs all of sluice-kube beside a plugin that offers 4 CPUs.
func (s *stand) sell() {
	s.Helper()
	log := logrus.New()
	log.SetOutput(s.Output())
	client, err := kube.NewClient(s.kubeconfig, "n1", "test")
	if err != nil {
		s.Fatal(err)
	}
	events := client.Events(log)
	publisher := kube.NewPublisher(client, selling.Sluice.Names(), events, log)
	evictor := kube.NewEvictor(client, s.kube(), publisher.Pods(), events, log)
	evictor.CoolDown = publisher.CoolDown
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { events.Run(ctx) })
	running.Go(func() { publisher.Run(ctx) })
	running.Go(func() { evictor.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			if err := publisher.Heard(offering()); err != nil {
				s.Error(err)
			}
			time.Sleep(500 * time.Millisecond)
		}
	})
	s.Cleanup(func() { cancel(); running.Wait() })
	bed.Await(s, "the evictor is connected", func() error {
		if !s.link.IsConnected() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

func offering() *status.Status {
	now := statustest.Selling(time.Now())
	now.Loop.Offer = control.Offer{Known: true, ShortTerm: control.Amount{CPU: 4000, MemoryBytes: 4 << 30}}
	return now
}

// batchPod makes a pod that runs on the node, and requests batch CPU in thousandths.
func (s *stand) batchPod(name string, milli int64) *corev1.Pod {
	s.Helper()
	requests := corev1.ResourceList{batchCPU: *resource.NewQuantity(milli, resource.DecimalSI)}
	p, err := s.client.CoreV1().Pods("batch").Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{
			Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	if p, err = s.client.CoreV1().Pods("batch").UpdateStatus(s.Context(), p, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	return p
}

// cpu waits until the node has that much batch CPU, in thousandths.
func (s *stand) cpu(when string, milli int64) {
	s.Helper()
	bed.Await(s, when, func() error {
		node, err := s.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		has := node.Status.Allocatable[batchCPU]
		if has.Value() != milli {
			return fmt.Errorf("the node has %d, want %d", has.Value(), milli)
		}
		return nil
	})
}
