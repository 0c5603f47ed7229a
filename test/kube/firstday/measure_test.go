package firstday

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// batchQuota is how many CPUs the kernel lets the node's batch work use.
func (d *day) batchQuota(n *bed.Node) float64 {
	d.Helper()
	cgroup := filepath.Join(n.CgroupRoot, "kubepods", "besteffort")
	var quota, period string
	if n.V2() {
		quota, period, _ = strings.Cut(n.CgroupFile(d, cgroup, "cpu.max"), " ")
	} else {
		quota, period = n.CgroupFile(d, cgroup, "cpu.cfs_quota_us"), n.CgroupFile(d, cgroup, "cpu.cfs_period_us")
	}
	if quota == "max" || quota == "-1" {
		return float64(runtime.NumCPU())
	}
	time, err := strconv.ParseFloat(quota, 64)
	of, err2 := strconv.ParseFloat(period, 64)
	if err := errors.Join(err, err2); err != nil {
		d.Fatal(err)
	}
	return time / of
}

// loadDoubles starts the second replica of web, whose load begins 20 s after its container, and
// measures what follows.
func (d *day) loadDoubles(running map[string]corev1.Pod) {
	d.Helper()
	d.run("kubectl -n shop scale deployment web --replicas=2")
	cgroup := d.newest("shop")
	sold, used, quota := d.amount(d.n1, batchCPU), d.n1.CPUTime(d, cgroup), d.batchQuota(d.n1)
	if used > time.Second {
		d.Fatalf("the load of the second replica has begun %s of CPU time before it was watched", used)
	}
	for d.n1.CPUTime(d, cgroup)-used < 10*time.Millisecond {
		quota = min(quota, d.batchQuota(d.n1))
		time.Sleep(2 * time.Millisecond)
	}
	step := time.Now()
	d.await(step, 2*time.Millisecond, 20*time.Second, "from the load step to the first squeeze of batch work",
		func() bool { return d.batchQuota(d.n1) < quota-0.2 })
	d.await(step, 50*time.Millisecond, 135*time.Second, "from the load step to the smaller offer in the node object",
		func() bool { return d.amount(d.n1, batchCPU) < sold })
	time.Sleep(5 * time.Second) // in which a waiting pod would start
	d.Logf("batch work may use %.2f CPUs (before: %.2f), and the node sells %d thousandths of a CPU (before: %d)",
		d.batchQuota(d.n1), quota, d.amount(d.n1, batchCPU), sold)
	if after := d.running(""); !maps.EqualFunc(after, running, sameContainer) {
		d.Errorf("before the load doubled, the pods %q ran, and now %q, or their containers have started again",
			slices.Sorted(maps.Keys(running)), slices.Sorted(maps.Keys(after)))
	}
	d.says(d.run("kubectl sluice log --node"), "shop/web-")
}

// await measures the time from began to the condition, which it checks again after each pause.
func (d *day) await(began time.Time, pause, most time.Duration, what string, condition func() bool) {
	d.Helper()
	for !condition() {
		if time.Since(began) > most {
			d.Fatalf("%s: more than %s", what, most)
		}
		time.Sleep(pause)
	}
	d.measured(what, time.Since(began), most)
}

// measured prints a time, and fails if it is longer than it may be: some five times of what the
// page shows.
func (d *day) measured(what string, took, most time.Duration) {
	d.Helper()
	d.Logf("MEASURED %s: %s, which is %.2f of the longest that passes", what, took.Round(time.Millisecond), took.Seconds()/most.Seconds())
	if took > most {
		d.Errorf("%s: %s, want at most %s", what, took, most)
	}
}

// newest is the cgroup of the newest pod's container in a namespace of services, which runs on n1.
func (d *day) newest(namespace string) string {
	d.Helper()
	pod := slices.MaxFunc(d.pods(namespace), func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return d.n1.Cgroup(d, &pod, "main")
}

func sameContainer(a, b corev1.Pod) bool {
	x, y := a.Status.ContainerStatuses[0], b.Status.ContainerStatuses[0]
	return a.UID == b.UID && x.ContainerID == y.ContainerID && x.RestartCount == y.RestartCount
}

// memoryIsShort lets cache grow until pods of the Job are evicted, and follows them.
func (d *day) memoryIsShort() {
	d.Helper()
	d.run("kubectl -n etl patch job crunch")
	bed.Await(d, "8 pods of the Job to run", func() error {
		if n := len(d.running("")); n != 8 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	before := d.running("")
	if n := len(d.running(d.n1.Name)); n == 0 || n == 8 {
		d.Errorf("of 8 pods, %d run on node %s, want some on each node", n, d.n1.Name)
	}
	bed.Await(d, "the Job's pods on node n1 to hold their memory", func() error {
		file, want := "memory.usage_in_bytes", int64(len(d.running(d.n1.Name)))*100<<20
		if d.n1.V2() {
			file = "memory.current"
		}
		got, err := strconv.ParseInt(d.n1.CgroupFile(d, filepath.Join(d.n1.CgroupRoot, "kubepods", "besteffort"), file), 10, 64)
		if err == nil && got < want {
			err = fmt.Errorf("they hold %d MiB, want %d", got>>20, want>>20)
		}
		return err
	})
	d.run("kubectl -n shop scale deployment cache --replicas=1")
	h := d.follow(before)
	d.measured("from the eviction of "+h.victim+", with 5 s of grace, to the start of "+h.successor.Name+" on node "+h.successor.Spec.NodeName, h.took, 140*time.Second)
	if h.successor.Spec.NodeName != d.n2.Name {
		d.Errorf("the successor of %s runs on %s, where memory is short", h.victim, h.successor.Spec.NodeName)
	}
	d.says(d.run("kubectl -n etl get events"), h.victim, "evict")
	job, err := d.client.BatchV1().Jobs("etl").Get(d.Context(), "crunch", metav1.GetOptions{})
	if err != nil {
		d.Fatal(err)
	}
	if job.Status.Failed > 0 {
		d.Errorf("%d pods of the Job count as failed", job.Status.Failed)
	}
}

// handover is the first eviction, and the first pod that ran after it.
type handover struct {
	victim    string
	successor corev1.Pod
	took      time.Duration
}

// follow watches the Job's pods until one was evicted and a new one runs. The budget holds all the
// time.
func (d *day) follow(before map[string]corev1.Pod) handover {
	d.Helper()
	watch, err := d.client.CoreV1().Pods("etl").Watch(d.Context(), metav1.ListOptions{})
	if err != nil {
		d.Fatal(err)
	}
	defer watch.Stop()
	var h handover
	var evicted time.Time
	ready := map[string]bool{}
	for name := range before {
		ready[name] = true
	}
	for timeout := time.After(3 * time.Minute); ; {
		select {
		case <-timeout:
			d.Fatalf("in 3 minutes no pod was evicted and followed by another one: %+v", h)
		case event := <-watch.ResultChan():
			p, ok := event.Object.(*corev1.Pod)
			if !ok {
				d.Fatalf("the watch of pods ended: %+v", event)
			}
			if p.DeletionTimestamp != nil && h.victim == "" {
				h.victim, evicted = p.Name, time.Now()
			}
			if ready[p.Name] = bed.Ready(p) && p.DeletionTimestamp == nil; !ready[p.Name] {
				delete(ready, p.Name)
			}
			if len(ready) < 6 {
				d.Errorf("only the pods %q are left, fewer than the budget allows", slices.Sorted(maps.Keys(ready)))
			}
			if _, old := before[p.Name]; !old && ready[p.Name] {
				h.successor, h.took = *p, time.Since(evicted)
				return h
			}
		}
	}
}
