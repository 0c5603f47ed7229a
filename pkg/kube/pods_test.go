package kube

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
)

// hostile is a pod of more than a megabyte, as the API server sends it.
func hostile(t *testing.T, i int) []byte {
	t.Helper()
	controls := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("p%d", i), UID: "u", ResourceVersion: "7"}}
	for n := range 2000 {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: "Job", Name: fmt.Sprintf("%d-%s", n, strings.Repeat("n", 200)), UID: "o"})
		c := container("1", "")
		c.Name = fmt.Sprintf("c%d", n)
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	pod.OwnerReferences[9].Kind, pod.OwnerReferences[9].Controller = strings.Repeat("ä", 300000), &controls
	data, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A hundred pods of more than a megabyte each must not take the memory of sluice-kube. The test does not
// run beside others: it measures the heap.
func TestPodsKeepLittle(t *testing.T) {
	p := &Pods{names: selling.Sluice.Names(), known: -1, store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	before := heap()
	const pods = 100
	for i := range pods {
		var pod corev1.Pod
		if err := pod.Unmarshal(hostile(t, i)); err != nil {
			t.Fatal(err)
		}
		if err := p.store.Add(p.trim(&pod)); err != nil {
			t.Fatal(err)
		}
	}
	kept := (int64(heap()) - int64(before)) / pods
	t.Logf("%d bytes are kept of a pod", kept)
	if kept > 2<<10 {
		t.Errorf("%d bytes are kept of a pod, want 2 KiB at most", kept)
	}
	p.changes.Add(1)
	requests, _ := p.Requests(func(_ *Pod, err error) { t.Error(err) })
	if len(requests) != pods || requests[0].Requests[selling.BatchCPU] != 2000 {
		t.Errorf("%d pods request something, the first %+v", len(requests), requests[0])
	}
	pod := p.All()[0]
	if p.trim(pod) != any(pod) {
		t.Error("a trimmed pod was trimmed again")
	}
	if len(pod.Owner) > 63+253+64 || !strings.HasPrefix(pod.Owner, "ää") || !strings.HasSuffix(pod.Owner, " ns/9-"+strings.Repeat("n", 200)) {
		t.Errorf("the owner is %q", pod.Owner)
	}
}

func TestEndsIn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC)
	in := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	seconds := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		meta   metav1.ObjectMeta
		want   time.Duration
		ending bool
	}{
		"it is not ending":          {metav1.ObjectMeta{}, 0, false},
		"a day":                     {metav1.ObjectMeta{DeletionTimestamp: in(23 * time.Hour), DeletionGracePeriodSeconds: seconds(86400)}, 23 * time.Hour, true},
		"overdue":                   {metav1.ObjectMeta{DeletionTimestamp: in(-time.Hour), DeletionGracePeriodSeconds: seconds(30)}, 0, true},
		"a clock that is ahead":     {metav1.ObjectMeta{DeletionTimestamp: in(time.Hour), DeletionGracePeriodSeconds: seconds(30)}, 30 * time.Second, true},
		"a period that overflows":   {metav1.ObjectMeta{DeletionTimestamp: in(time.Hour), DeletionGracePeriodSeconds: seconds(math.MaxInt64)}, time.Hour, true},
		"no period":                 {metav1.ObjectMeta{DeletionTimestamp: in(time.Hour)}, 0, true},
		"a period that is negative": {metav1.ObjectMeta{DeletionTimestamp: in(time.Hour), DeletionGracePeriodSeconds: seconds(-1)}, 0, true},
	} {
		pod := (&Pods{}).trim(&corev1.Pod{ObjectMeta: test.meta}).(*Pod)
		if got, ending := pod.endsIn(now); got != test.want || ending != test.ending {
			t.Errorf("%s: %v, %v; want %v, %v", name, got, ending, test.want, test.ending)
		}
	}
}
