package agent

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const recordFile = "var/lib/kubelet/allocated_pods_state"

// kubelet is a host with the kubelet's record of granted resources.
type kubelet struct {
	mu      sync.Mutex
	entries map[string]string // the pod's containers as JSON, by pod
	text    string            // written in place of the entries; "" for none
	writes  int               // number of writes of the file; 0 if it doesn't exist
	hangs   chan struct{}     // blocks reads until it is closed; nil if reads don't block
}

func (k *kubelet) Open(name string) (fs.File, error) {
	k.mu.Lock()
	hangs := k.hangs
	k.mu.Unlock()
	if hangs != nil && name == recordFile {
		<-hangs
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	host := fstest.MapFS{"proc": &fstest.MapFile{Mode: fs.ModeDir}}
	if k.writes > 0 {
		host[recordFile] = &fstest.MapFile{Data: []byte(k.file()), ModTime: time.Unix(int64(k.writes), 0)}
	}
	return host.Open(name)
}

func (k *kubelet) file() string {
	if k.text != "" {
		return k.text
	}
	var pods []string
	for pod, containers := range k.entries {
		pods = append(pods, fmt.Sprintf(`%q:{"ContainerResources":%s}`, pod, containers))
	}
	data, _ := json.Marshal(`{"entries":{` + strings.Join(pods, ",") + `}}`)
	return `{"data":` + string(data) + `,"checksum":1}`
}

// grant records what a container was granted, as the kubelet does when it admits or resizes a pod,
// for example "cpu=2,memory=1Gi".
func (k *kubelet) grant(name, amounts string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod, container, _ := strings.Cut(name, "/")
	list := map[string]string{}
	for amount := range strings.SplitSeq(amounts, ",") {
		if resource, value, ok := strings.Cut(amount, "="); ok {
			list[resource] = value
		}
	}
	text, _ := json.Marshal(map[string]any{container: map[string]any{"requests": list}})
	if k.entries == nil {
		k.entries = map[string]string{}
	}
	k.entries[pod] = string(text)
	k.writes++
}

// write replaces the file by a text, or by the record if the text is "".
func (k *kubelet) write(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text = text
	k.writes++
}

// hang blocks reads until answer is called.
func (k *kubelet) hang() (answer func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := make(chan struct{})
	k.hangs = done
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.hangs = nil
		close(done)
	}
}

// beside returns the setup of a node with that kubelet.
func (k *kubelet) beside(config string) knobSetup {
	return knobSetup{config: config, options: func(_ *knobNode, o *Options) { o.Host = k }}
}

// onKubelets runs onBothLoops with a kubelet that keeps a record.
func onKubelets(t *testing.T, config string, test func(t *testing.T, h *loopNode, k *kubelet)) {
	t.Helper()
	t.Parallel()
	for _, f := range mainlines() {
		t.Run(f.Name, func(t *testing.T) {
			k := &kubelet{}
			onLoop(t, f, k.beside(config), func(t *testing.T, h *loopNode) { test(t, h, k) })
		})
	}
}

// passes lets one pass read the record and the next one use it.
func (h *loopNode) passes() {
	for range 2 {
		time.Sleep(h.agent.Config.DriftInterval)
		synctest.Wait()
	}
}

func (h *loopNode) request(name string) (cpu workload.MilliCPU, memory int64, by workload.RequestSource) {
	h.t.Helper()
	s, err := h.agent.Status()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range s.Containers {
		if strings.HasSuffix(c.Ref, "/"+name) {
			return c.Requested, c.RequestedMemoryBytes, c.RequestedBy
		}
	}
	h.t.Fatalf("%s is not in the status", name)
	return 0, 0, ""
}

func (h *loopNode) expectRequest(name string, cpu workload.MilliCPU, memory int64, by workload.RequestSource) {
	h.t.Helper()
	if c, m, b := h.request(name); c != cpu || m != memory || b != by {
		h.t.Errorf("%s requests %dm and %d bytes by %s, want %dm and %d by %s", name, c, m, b, cpu, memory, by)
	}
}

// From its first instruction on, a batch pod has the weight, the quota and the memory limit of the
// batch resources that the kubelet has granted. The loop counts them as its request.
func TestBatchHasItsGrant(t *testing.T) {
	onKubelets(t, byQuota, func(t *testing.T, h *loopNode, k *kubelet) {
		k.grant("job/c", "batch.sluice.dev/cpu=2000,batch.sluice.dev/memory=1Gi")
		k.grant("web/c", "cpu=6")
		h.run(service("web/c", 6000), batch("job/c"), batch("bare/c"))
		h.steps(time.Second)
		h.expectRequest("job/c", 2000, 1<<30, workload.FromKubelet)
		h.expectRequest("bare/c", 0, 0, workload.Inferred)
		h.expectQuota(bestBox+"/pod-job/c", 2)
		if limit, err := h.spy.Read(bestBox+"/pod-job/c", knobs.MemoryMax); err != nil || limit != knobs.Value(knobs.Bytes(1<<30)) {
			t.Errorf("memory limit %v, %v", limit, err)
		}
		s, _ := h.agent.Status()
		batchRequests := workload.MilliCPU(0)
		h.agent.events.Query("test", func() error { batchRequests = h.agent.loop.BatchStatus().Requested; return nil })
		if batchRequests != 2000 || s.Grants.Pods != 2 || s.Grants.File != "/"+recordFile || s.Grants.Problem != "" {
			t.Errorf("batch requests %d; %+v", batchRequests, s.Grants)
		}
		if h.V2 { // memory.reclaim replaces the watermark and the limit of page cache
			var reclaim qos.Reclaim
			h.agent.events.Query("test", func() error { reclaim = h.agent.Containers[h.specs["job/c"].ID].Reclaim; return nil })
			if reclaim.StartAt < 900*mebi || reclaim.StartAt > 1000*mebi || reclaim.CacheMax != 512*mebi {
				t.Errorf("of a grant of 1 GiB it is reclaimed %+v", reclaim)
			}
		}
		// A pod gets its grant even if the record is read late.
		answer := k.hang()
		k.grant("late/c", "batch.sluice.dev/cpu=1000,batch.sluice.dev/memory=512Mi")
		began := time.Now()
		h.run(batch("late/c"))
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("while the disk hung the create took %v", took)
		}
		h.expectRequest("late/c", 0, 0, workload.Inferred)
		answer()
		h.passes()
		h.expectRequest("late/c", 1000, 512<<20, workload.FromKubelet)
		h.expectQuota(bestBox+"/pod-late/c", 1)
	})
}

// Requests that the runtime doesn't report follow the record, also if the resize of a running pod
// changes nothing else. A pin's CPUs follow the runtime's update.
func TestRequestsFollowTheRecord(t *testing.T) {
	onKubelets(t, "", func(t *testing.T, h *loopNode, k *kubelet) {
		k.grant("web/c", "cpu=1500m,memory=1Gi")
		k.grant("db/c", "cpu=2,memory=1Gi")
		h.run(ask{name: "web/c", qos: "burstable", milli: 1500}, ask{name: "db/c", milli: 2000, memory: 1024, annotations: map[string]string{"class.sluice.dev": "LSR"}})
		h.expectRequest("web/c", 1500, 1<<30, workload.FromKubelet)
		k.grant("web/c", "cpu=1500m,memory=3Gi")
		k.grant("db/c", "cpu=3,memory=1Gi")
		h.passes()
		h.expectRequest("web/c", 1500, 3<<30, workload.FromKubelet)
		h.expectRequest("db/c", 2000, 1<<30, workload.FromKubelet)
		if n := h.set("db/c").Size(); n != 2 {
			t.Errorf("the pin has %d CPUs before the runtime was told of more", n)
		}
	})
}

// If an annotation claims more than the record grants, the record counts, and the difference is
// reported once.
func TestForgedGrantIsCut(t *testing.T) {
	onKubelets(t, byQuota, func(t *testing.T, h *loopNode, k *kubelet) {
		forged := batch("job/c")
		forged.annotations["grant.sluice.dev"] = `{c: {cpu: "64", memory: 64Gi}}`
		k.grant("job/c", "batch.sluice.dev/cpu=500,batch.sluice.dev/memory=1Gi")
		h.run(service("web/c", 2000), forged)
		h.restart(h.text)
		h.passes()
		h.expectRequest("job/c", 500, 1<<30, workload.FromKubelet)
		h.expectQuota(bestBox+"/pod-job/c", 0.5)
		s, _ := h.agent.Status()
		if s.Counters.GrantsCut != 1 || h.log.count("Grant cut") != 2 { // once per run
			t.Errorf("%d cut, log:\n%s", s.Counters.GrantsCut, h.log.text.String())
		}
		if len(s.Containers) != 2 || !strings.Contains(fmt.Sprint(s.Containers), "claims CPU 64") ||
			len(s.Grants.Cut) != 1 || s.Grants.Cut[0].Container != "ns/job/c" || !strings.Contains(s.Grants.Cut[0].Why, "claims CPU 64") {
			t.Errorf("the status doesn't tell: %+v", s.Containers)
		}
	})
}

// A record in an unknown format is reported once, and annotations count instead.
func TestRecordNotUnderstood(t *testing.T) {
	onKubelets(t, byQuota, func(t *testing.T, h *loopNode, k *kubelet) {
		k.grant("job/c", "batch.sluice.dev/cpu=500")
		said := batch("job/c")
		said.annotations["grant.sluice.dev"] = `{c: {cpu: "2"}}`
		h.run(service("web/c", 2000), said)
		h.expectRequest("job/c", 500, 0, workload.FromKubelet)
		k.write(`{"version":"v9","data":"{}"}`)
		h.passes()
		h.expectRequest("job/c", 2000, 0, workload.FromAnnotation)
		k.write(`{"version":"v9","data":"{ }"}`)
		h.passes()
		s, _ := h.agent.Status()
		if h.log.count("is not known") != 1 || s.Grants.Pods != 0 || !strings.Contains(s.Grants.Problem, `is of version "v9"`) {
			t.Errorf("%+v, log:\n%s", s.Grants, h.log.text.String())
		}
		k.write("")
		h.passes()
		h.expectRequest("job/c", 500, 0, workload.FromKubelet)
	})
}

// Batch pods that have no common cgroup share the budget in proportion to their grants, from
// Koordinator's annotation or from the record.
func TestGrantsDivideTheBudget(t *testing.T) {
	onKubelets(t, byQuota, func(t *testing.T, h *loopNode, k *kubelet) {
		large, small := batch("large/c"), batch("small/c")
		large.annotations["node.koordinator.sh/extended-resource-spec"] = `{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"7000"}}}}`
		k.grant("small/c", "kubernetes.io/batch-cpu=1000")
		agent := ask{name: "agent/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "LS"}} // an LS pod in the besteffort cgroup, so that the cgroup gets no quota
		h.run(service("web/c", 2000), agent, large, small)
		h.uses["web/c"], h.uses["large/c"], h.uses["small/c"] = 2, 5, 1
		h.steps(5 * time.Second)
		budget := h.quotaOf(bestBox+"/pod-large") + h.quotaOf(bestBox+"/pod-small")
		if large := h.quotaOf(bestBox + "/pod-large"); budget < 3 || large < 2*budget/3 {
			t.Errorf("7 of 8 granted CPUs have %v of %v", large, budget)
		}
	})
}

// TestPlanByAManifest checks that the plan uses the requests of the manifest if the kubelet keeps
// a record, and otherwise only what the runtime would report.
func TestPlanByAManifest(t *testing.T) {
	onKubelets(t, byQuota, func(t *testing.T, h *loopNode, k *kubelet) {
		pod := &workload.Pod{ID: "plan", UID: "plan", Namespace: "default", Name: "job", CgroupParent: "/kubepods/besteffort/podplan", Annotations: map[string]string{"class.sluice.dev": "BE"}}
		spec := workload.Container{ID: "plan/c", PodID: "plan", Name: "c", Granted: workload.Granted{Pod: true, Container: true, BatchCPU: 1500, MostBatchCPU: 1500}}
		grant := func() (found string) {
			answers, err := h.agent.WhatIf(pod, []workload.Container{spec})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range answers[0].Keys {
				if s.Key == "batch-resources" {
					found = s.Value
				}
			}
			return found
		}
		if got := grant(); got != "" {
			t.Errorf("without a record: %s", got)
		}
		k.grant("other/c", "cpu=1")
		h.passes()
		if got := grant(); got != "CPU 1.5" {
			t.Errorf("beside a record: %q", got)
		}
	})
}
