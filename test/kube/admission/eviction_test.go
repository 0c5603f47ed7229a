package admission

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/pkg/cluster/eviction"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// late checks that a policy refused an eviction with these words, and that sluice-kube tries such an eviction again.
func late(t *testing.T, err error, words string) {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !strings.Contains(err.Error(), words) {
		t.Fatalf("got %v, want %q", err, words)
	}
	reply := eviction.Reply{Code: int(status.Status().Code), Message: status.Status().Message}
	if a, wait, answered := eviction.After(&reply, eviction.Known{Synced: true, Found: true}, 1); answered || wait == 0 {
		t.Errorf("sluice-kube answers %+v to %+v, and does not try again", a, reply)
	}
}

// TestEvictionsOfOwnPods: the token of node A evicts pods of node A alone, also beside many others.
func TestEvictionsOfOwnPods(t *testing.T) {
	cluster, token := agent(t)
	admin := cluster.Client(t)
	const others = 300
	for i := range others {
		p := pod("etl", fmt.Sprintf("other-%d", i), corev1.ResourceRequirements{})
		p.Spec.NodeName = "b"
		if _, err := create(t, admin, p, false); err != nil {
			t.Fatal(err)
		}
	}
	uids := map[string]types.UID{"missing": "0"}
	for name, node := range map[string]string{"on-a": "a", "on-b": "b", "waiting": ""} {
		p := pod("etl", name, corev1.ResourceRequirements{})
		p.Spec.NodeName = node
		made, err := create(t, admin, p, false)
		if err != nil {
			t.Fatal(err)
		}
		uids[name] = made.UID
	}
	evictUID := func(client kubernetes.Interface, namespace, name string, uid types.UID, labels map[string]string) error {
		options := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		if uid != "" {
			options.Preconditions = &metav1.Preconditions{UID: &uid}
		}
		return client.CoreV1().Pods(namespace).EvictV1(context.Background(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}, DeleteOptions: options})
	}
	evict := func(client kubernetes.Interface, name string, labels map[string]string) error {
		return evictUID(client, "etl", name, uids[name], labels)
	}
	byAgent := map[string]string{"sluice.dev/evicted-by": "agent"}
	own := clientOf(t, token)
	bed.Await(t, "the policy of the own pods acts", func() error {
		if err := evict(own, "on-b", byAgent); err == nil {
			return bed.ErrNotYet
		}
		return nil
	})
	for name, want := range map[string]string{
		"on-a":    "",
		"on-b":    "the agent of node a may not evict pod on-b, which is on node b",
		"waiting": "the agent of node a may not evict pod waiting, which is on no node",
	} {
		if err := evict(own, name, byAgent); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if err := evict(admin, name, nil); err != nil {
			t.Errorf("%s by an administrator: %v", name, err)
		}
	}
	if err := evict(own, "missing", byAgent); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
	if err := evict(own, "on-a", nil); err == nil || !strings.Contains(err.Error(), "must have the label sluice.dev/evicted-by: agent") {
		t.Errorf("without the label: %v", err)
	}
	if err := evictUID(own, "etl", "on-a", "", byAgent); err == nil || !strings.Contains(err.Error(), "in deleteOptions.preconditions.uid") { // two policies say so, in any order
		t.Errorf("without the UID: %v", err)
	}
	// The API server answers as it does while its copy has an older pod of that name; sluice-kube then asks again.
	for name, other := range map[string]types.UID{"on-a": uids["on-b"], "on-b": uids["on-a"]} {
		late(t, evictUID(own, "etl", name, other, byAgent), "of UID "+string(uids[name]))
	}
	late(t, evictUID(own, "default", "missing", "0", byAgent), "no params found")
	if err := evict(clientOf(t, unbound(t, cluster)), "on-a", byAgent); err == nil || !strings.Contains(err.Error(), "sluice-own-") {
		t.Errorf("a token of no pod: %v", err)
	}
	for who, by := range map[string]struct {
		client kubernetes.Interface
		labels map[string]string
	}{"agent": {own, byAgent}, "administrator": {admin, nil}} {
		begin, used := time.Now(), cpuTime(t, cluster)
		const rounds = 20
		for range rounds {
			if err := evict(by.client, "on-a", by.labels); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("an eviction by the %s in a namespace of %d pods: %v, of which %v are CPU time of the API server", who, others+3, time.Since(begin)/rounds, (cpuTime(t, cluster)-used)/rounds)
	}
}

// cpuTime is the CPU time that the API server has used: utime and stime of /proc/PID/stat, in hundredths of a second.
func cpuTime(t *testing.T, cluster *bed.Cluster) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cluster.APIServer.PID()))
	if err != nil {
		t.Fatal(err)
	}
	var user, system time.Duration
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		t.Fatal(err)
	}
	return (user + system) * 10 * time.Millisecond
}
