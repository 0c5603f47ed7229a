package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// TestReboot lets a node lose its power, which has two CPUs, of which one stays with the pools. At first Sluice is
// back before the kubelet, as a service of the machine, and the slice was lost. Later it is back after the kubelet,
// as a DaemonSet. Then a pin that has waited for the claim's CPU runs first; and at last the pod with the claim
// was deleted by force meanwhile, and the scheduler has given its CPU to another pod before the node is back.
func TestReboot(t *testing.T) {
	s := newStand(t)
	s.awaitSlice(1)
	newRounds(s, 0).make("neighbour", "", shares, "")
	s.Apply(t, pod("one"))
	s.pinned("one")

	t.Run("a pod has its claim again", func(t *testing.T) {
		one, claim := s.AwaitReady(t, "default", "one"), s.claimOf(t, "one")
		before := s.rebooted(t)
		s.node.PowerOff(t)
		if err := s.Client(t).ResourceV1().ResourceSlices().Delete(t.Context(), sliceName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b := s.boot(t, s.node.Containerd, s.plugin, s.kube, s.node.Kubelet)
		s.awaitNewContainer(t, one)
		if now := s.rebooted(t); now == before {
			t.Errorf("the kubelet reports boot %s as before", now)
		}
		if after := s.claimOf(t, "one"); after.UID != claim.UID || !equality.Semantic.DeepEqual(after.Status.Allocation, claim.Status.Allocation) {
			t.Errorf("the claim was %+v, and is %+v", claim, after)
		}
		b.check(t, "one")
	})

	t.Run("a pin that starts earlier leaves the claim its CPU", func(t *testing.T) {
		one := s.AwaitReady(t, "default", "one")
		newRounds(s, 0).make("pin", "", pins, `"1"`)
		s.awaitTrouble("pin", "would leave 0 to the shared pools")
		s.node.PowerOff(t)
		b := s.boot(t, s.node.Containerd, s.node.Kubelet)
		pin := s.AwaitReady(t, "default", "pin")
		s.plugin.Start(t)
		s.kube.Start(t)
		s.awaitNewContainer(t, one)
		b.check(t, "one", pins)
		pods := s.Client(t).CoreV1().Pods("default")
		if err := pods.Delete(t.Context(), pin.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		bed.Await(t, "the end of the pin", func() error {
			_, err := pods.Get(t.Context(), pin.Name, metav1.GetOptions{})
			return bed.Gone(err)
		})
	})

	t.Run("a pod that was deleted meanwhile leaves nothing", func(t *testing.T) {
		s.Apply(t, pod("two"))
		s.awaitTrouble("two", "cannot allocate all claims")
		s.node.PowerOff(t)
		now := int64(0)
		pods := s.Client(t).CoreV1().Pods("default")
		if err := pods.Delete(t.Context(), "one", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		bed.Await(t, "the scheduler to bind pod two", func() error {
			two, err := pods.Get(t.Context(), "two", metav1.GetOptions{})
			if err == nil && two.Spec.NodeName == "" {
				err = errors.New(bed.Trouble(two))
			}
			return err
		})
		b := s.boot(t, s.node.Containerd, s.node.Kubelet)
		s.awaitEvent(t, "two", "FailedPrepareDynamicResources")
		s.plugin.Start(t)
		s.kube.Start(t)
		s.pinned("two")
		b.check(t, "two")
	})
}

// rebooted is the ID of the boot of which the kubelet has told the API server.
func (s *stand) rebooted(t *testing.T) string {
	t.Helper()
	node, err := s.Client(t).CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Status.NodeInfo.BootID
}

// claimOf is the claim of a pod, as the API server has it.
func (s *stand) claimOf(t *testing.T, pod string) *resourceapi.ResourceClaim {
	t.Helper()
	list, err := s.Client(t).ResourceV1().ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(c resourceClaim) bool { return strings.HasPrefix(c.Name, pod+"-mine-") })
	if i < 0 {
		t.Fatalf("pod %s has no claim", pod)
	}
	return &list.Items[i]
}

// awaitNewContainer waits until the pod's container runs that follows the one of before.
func (s *stand) awaitNewContainer(t *testing.T, before *corev1.Pod) {
	t.Helper()
	bed.Await(t, "a new container of pod "+before.Name, func() error {
		now, err := s.Client(t).CoreV1().Pods("default").Get(context.Background(), before.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case now.UID != before.UID:
			return fmt.Errorf("it is another pod")
		case now.Status.ContainerStatuses[0].ContainerID == before.Status.ContainerStatuses[0].ContainerID || !bed.Ready(now):
			return errors.New(bed.Trouble(now))
		}
		return nil
	})
}

// awaitEvent waits until the pod has an event with that reason.
func (s *stand) awaitEvent(t *testing.T, pod, reason string) {
	t.Helper()
	selector := "involvedObject.name=" + pod + ",reason=" + reason
	bed.Await(t, "an event "+reason+" of pod "+pod, func() error {
		list, err := s.Client(t).CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err == nil && len(list.Items) == 0 {
			err = bed.ErrNotYet
		}
		return err
	})
}

// boot is a node since it has power again.
type boot struct {
	*rounds
	began time.Time
	logs  map[*bed.Service]int // lengths of Sluice's logs before
}

// boot starts the node with its programs in that order.
func (s *stand) boot(t *testing.T, programs ...*bed.Service) *boot {
	t.Helper()
	b := &boot{newRounds(s, 0), time.Now(), map[*bed.Service]int{s.plugin: len(s.plugin.Log()), s.kube: len(s.kube.Log())}}
	s.node.PowerOn(t)
	s.makeFolders(t)
	for _, program := range programs {
		program.Start(t)
	}
	return b
}

// check checks that a pod has the node's only claim, and its container a CPU that no other one uses: neither the
// neighbour nor a container of another role.
func (b *boot) check(t *testing.T, pod string, others ...string) {
	t.Helper()
	t.Logf("pod %s ran %v after the node had power", pod, time.Since(b.began).Round(100*time.Millisecond))
	b.awaitSlice(1)
	b.rounds.check()
	uid := string(b.claimOf(t, pod).UID)
	reserved, _, err := b.reserved()
	if cpus := reserved[uid]; err != nil || len(reserved) != 1 || cpus.Size() != 1 {
		t.Errorf("claims have reserved %v (%v), want one CPU for %s of pod %s", reserved, err, uid, pod)
	}
	want := append(others, claims, shares)
	slices.Sort(want)
	bed.Await(t, fmt.Sprintf("the containers with %q", want), func() error {
		var roles []string
		for _, c := range b.containers() {
			roles = append(roles, c.role)
		}
		if slices.Sort(roles); !slices.Equal(roles, want) {
			return fmt.Errorf("containers run with %q", roles)
		}
		return nil
	})
	for _, c := range b.containers() {
		if c.role != claims && c.cpus.Overlaps(reserved[uid]) {
			t.Errorf("the container with %s is on CPUs %s, and pod %s has %s", c.role, c.cpus, pod, reserved[uid])
		}
	}
	for program, from := range b.logs {
		for line := range strings.Lines(program.Log()[from:]) {
			if strings.Contains(line, "level=error") || strings.Contains(line, "level=fatal") || strings.Contains(line, "panic") {
				t.Errorf("a program of Sluice has logged %s", line)
			}
		}
	}
}
