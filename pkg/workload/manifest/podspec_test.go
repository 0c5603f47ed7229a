package manifest

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const gib = 1 << 30

// pod returns a manifest with these containers.
func pod(containers string) string {
	return "kind: Pod\nmetadata: {name: p}\nspec:\n  containers: [" + containers + "]\n"
}

func parseOne(t *testing.T, manifest string) Pod {
	t.Helper()
	pods, err := Parse([]byte(manifest), 100*gib)
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d pods, %v in\n%s", len(pods), err, manifest)
	}
	return pods[0]
}

func TestContainerResources(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		resources string
		want      workload.Resources
		oom       int
		qos       workload.QoS
	}{
		{"{}", workload.Resources{Shares: 2, Period: 100000}, 1000, workload.BestEffort},
		{"{requests: {cpu: 0}}", workload.Resources{Shares: 2, Period: 100000}, 1000, workload.BestEffort},
		{"{requests: {cpu: 1m}}", workload.Resources{Shares: 2, Period: 100000}, 999, workload.Burstable},
		{"{requests: {cpu: 500m}}", workload.Resources{Shares: 512, Period: 100000}, 999, workload.Burstable},
		{"{requests: {cpu: 300}}", workload.Resources{Shares: 262144, Period: 100000}, 999, workload.Burstable},
		{"{requests: {cpu: 9Pi}}", workload.Resources{}, 0, 0},
		{"{requests: {cpu: 1Pi}}", workload.Resources{Shares: 262144, Period: 100000}, 999, workload.Burstable},
		{"{limits: {cpu: 2}}", workload.Resources{Shares: 2048, Quota: 200000, Period: 100000}, 999, workload.Burstable},
		{"{limits: {cpu: 1m}}", workload.Resources{Shares: 2, Quota: 1000, Period: 100000}, 999, workload.Burstable},
		{"{requests: {memory: 25Gi}}", workload.Resources{Shares: 2, Period: 100000}, 750, workload.Burstable},
		{"{requests: {memory: 200Gi}}", workload.Resources{Shares: 2, Period: 100000}, 3, workload.Burstable},
		{"{limits: {cpu: 2, memory: 1Gi}}", workload.Resources{Shares: 2048, Quota: 200000, Period: 100000, MemoryLimit: gib}, -997, workload.Guaranteed},
		{"{limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 2000m}}", workload.Resources{Shares: 2048, Quota: 200000, Period: 100000, MemoryLimit: gib}, -997, workload.Guaranteed},
		{"{limits: {cpu: 2, memory: 1Gi}, requests: {cpu: 1}}", workload.Resources{Shares: 1024, Quota: 200000, Period: 100000, MemoryLimit: gib}, 990, workload.Burstable},
	} {
		pods, err := Parse([]byte(pod("{name: c, resources: "+test.resources+"}")), 100*gib)
		if test.want == (workload.Resources{}) {
			if err == nil {
				t.Errorf("%s is taken", test.resources)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.resources, err)
			continue
		}
		c := pods[0].Containers[0]
		if c.Resources != test.want || c.OOMScoreAdj != test.oom || pods[0].Sandbox.QoS() != test.qos {
			t.Errorf("%s: %+v, score %d, %s; want %+v, %d, %s", test.resources, c.Resources, c.OOMScoreAdj, pods[0].Sandbox.QoS(), test.want, test.oom, test.qos)
		}
	}
}

// Requests inferred from the kubelet's values equal those of the manifest.
func TestRequestsComeBack(t *testing.T) {
	t.Parallel()
	for resources, want := range map[string]workload.MilliCPU{
		"{limits: {cpu: 3, memory: 1Gi}}":    3000,
		"{requests: {cpu: 1500m}}":           1500,
		"{limits: {cpu: 250m, memory: 1Gi}}": 250,
	} {
		p := parseOne(t, pod("{name: c, resources: "+resources+"}"))
		if got, exact := workload.CPURequest(p.Sandbox, p.Containers[0].Resources); got != want || !exact {
			t.Errorf("%s: %d, %v", resources, got, exact)
		}
	}
}

func TestQoSOfSeveralContainers(t *testing.T) {
	t.Parallel()
	const full, none, part = "{name: %, resources: {limits: {cpu: 1, memory: 1Gi}}}", "{name: %}", "{name: %, resources: {requests: {cpu: 1}}}"
	name := func(container, name string) string { return strings.Replace(container, "%", name, 1) }
	for _, test := range []struct {
		init, a, b string
		pod        string
		want       workload.QoS
	}{
		{"", full, full, "", workload.Guaranteed},
		{"", full, none, "", workload.Burstable},
		{"", none, none, "", workload.BestEffort},
		{none, full, full, "", workload.Burstable},
		{full, full, full, "", workload.Guaranteed},
		{part, none, none, "", workload.Burstable},
		{"", none, none, "{limits: {cpu: 1, memory: 1Gi}}", workload.Guaranteed},
		{"", full, full, "{requests: {cpu: 2}}", workload.Burstable},
	} {
		manifest := pod(name(test.a, "a") + "," + name(test.b, "b"))
		if test.init != "" {
			manifest += "  initContainers: [" + name(test.init, "i") + "]\n"
		}
		if test.pod != "" {
			manifest += "  resources: " + test.pod + "\n"
		}
		if got := parseOne(t, manifest).Sandbox.QoS(); got != test.want {
			t.Errorf("init %q, %q, %q, pod %q: %s, want %s", test.init, test.a, test.b, test.pod, got, test.want)
		}
	}
}

func TestPodOfAManifest(t *testing.T) {
	t.Parallel()
	got := parseOne(t, `
apiVersion: v1
kind: Pod
metadata:
  name: db-0
  namespace: data
  uid: 1-2-3
  labels: {app: db}
  annotations: {class.sluice.dev: LSE}
spec:
  runtimeClassName: kata
  hostNetwork: true
  initContainers:
  - name: prepare
    resources: {requests: {memory: 10Gi}}
  - name: proxy
    restartPolicy: Always
  containers:
  - name: main
    image: db:1
    resources: {requests: {cpu: 2, memory: 40Gi}}
`)
	want := Pod{
		Sandbox: &workload.Pod{
			ID: "1-2-3", UID: "1-2-3", Namespace: "data", Name: "db-0", RuntimeHandler: "kata",
			Labels: map[string]string{"app": "db"}, Annotations: map[string]string{"class.sluice.dev": "LSE"},
			CgroupParent: "/kubepods/burstable/pod1-2-3",
		},
		Containers: []workload.Container{
			{ID: "1-2-3/prepare", PodID: "1-2-3", Name: "prepare", State: workload.Stopped, OOMScoreAdj: 900, Resources: workload.Resources{Shares: 2, Period: 100000}, Granted: workload.Granted{Pod: true, Container: true, Memory: 10 << 30}},
			{ID: "1-2-3/proxy", PodID: "1-2-3", Name: "proxy", OOMScoreAdj: 600, Resources: workload.Resources{Shares: 2, Period: 100000}, Granted: workload.Granted{Pod: true, Container: true}},
			{ID: "1-2-3/main", PodID: "1-2-3", Name: "main", OOMScoreAdj: 600, Resources: workload.Resources{Shares: 2048, Period: 100000}, Granted: workload.Granted{Pod: true, Container: true, CPU: 2000, Memory: 40 << 30}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", *got.Sandbox, got.Containers, *want.Sandbox, want.Containers)
	}
}

// TestGrantOfAManifest checks that the grant is what a batch pod requests of the node's extended
// resources, and what a pod requests at pod level.
func TestGrantOfAManifest(t *testing.T) {
	t.Parallel()
	grant := func(manifest string) []workload.Granted {
		var all []workload.Granted
		pods, err := Parse([]byte(manifest), 100*gib)
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods[0].Containers {
			all = append(all, pods[0].Containers[i].Granted)
		}
		return all
	}
	for resources, want := range map[string]workload.Granted{
		"{limits: {batch.sluice.dev/cpu: 1500, batch.sluice.dev/memory: 2Gi}}":                       {BatchCPU: 1500, BatchMemory: 2 * gib, MostBatchCPU: 1500, MostBatchMemory: 2 * gib},
		"{requests: {kubernetes.io/batch-cpu: \"500\"}, limits: {kubernetes.io/batch-cpu: \"500\"}}": {BatchCPU: 500, MostBatchCPU: 500},
		"{limits: {mid.sluice.dev/cpu: 1500}}":                                                       {BatchCPU: 1500, MostBatchCPU: 1500, Mid: true},
		"{requests: {nvidia.com/gpu: 1, cpu: 1Pi, memory: 1Ti}}":                                     {CPU: 1 << 52, Memory: 1 << 40},
		"{}": {},
	} {
		want.Pod, want.Container = true, true
		if got := grant(pod("{name: c, resources: " + resources + "}")); got[0] != want {
			t.Errorf("%s: %+v, want %+v", resources, got[0], want)
		}
	}
	level := grant(pod("{name: a, resources: {requests: {cpu: 1}}},{name: b}") + "  resources: {requests: {cpu: 3}}\n")
	if level[0].CPU != 1000 || level[1].CPU != 2000 || !level[1].PodLevel {
		t.Errorf("of a pod of 3 CPUs: %+v", level)
	}
	if _, err := Parse([]byte(pod("{name: c, resources: {limits: {batch.sluice.dev/cpu: many}}}")), gib); err == nil || !strings.Contains(err.Error(), `container "c" of pod`) {
		t.Errorf("no amount: %v", err)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	const template = `{metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}`
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"} {
		spec := "{replicas: 3, template: " + template + "}"
		if kind == "CronJob" {
			spec = "{jobTemplate: {spec: " + spec + "}}"
		}
		p := parseOne(t, "kind: "+kind+"\nmetadata: {name: w, namespace: n}\nspec: "+spec+"\n")
		if p.Sandbox.Name != "w" || p.Sandbox.Namespace != "n" || p.Sandbox.Labels["a"] != "b" || len(p.Containers) != 1 {
			t.Errorf("%s: %+v %+v", kind, p.Sandbox, p.Containers)
		}
	}
}

func TestSeveralDocuments(t *testing.T) {
	t.Parallel()
	one := pod("{name: c}")
	for _, manifest := range []string{
		one + "---\n" + one,
		"---\n---\n" + one + "---\nkind: Service\nspec: {containers: 5}\n---\n" + one,
		`{"kind": "List", "items": [{"kind": "ConfigMap"}, {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}},` +
			` {"kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c"}]}}]}`,
	} {
		if pods, err := Parse([]byte(manifest), 0); err != nil || len(pods) != 2 {
			t.Errorf("%d pods, %v in\n%s", len(pods), err, manifest)
		}
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	t.Parallel()
	for manifest, want := range map[string]string{
		"":                                  "there is no pod",
		"kind: Service\n":                   "there is no pod",
		"kind: [\n":                         "line 1",
		"kind: Pod\nspec: {containers: []}": "line 2: metadata.name is missing",
		"kind: Pod\nmetadata: {name: p}\nspec: {containers: []}":                      "line 3: pod p has no containers",
		"\nkind: Pod\nspec: {containers: {}}\n":                                       "line 3: cannot unmarshal !!map: this is not what",
		pod("{name: c},\n{name: c}"):                                                  "line 5: there are two containers named c",
		pod("{image: c}"):                                                             "line 4: a container has no name",
		pod("{name: c,\n resources: {limits: {cpu: 4 cores}}}"):                       `line 5: resource amount "4 cores" must be a number`,
		pod("{name: c, resources: {limits: {cpu: [4]}}}"):                             "line 4: a resource amount must be a number",
		pod("{name: c, resources: {limits: {cpu: 1}, requests: {cpu: 2}}}"):           "container c requests more CPU than its limit",
		pod("{name: c, resources: {limits: {memory: 1Gi}, requests: {memory: 2Gi}}}"): "container c requests more memory than its limit",
		"kind: Pod\nmetadata:\n  name: p\n  annotations:\n    cpus.sluice.dev: 4\n":   `line 5: the value of "cpus.sluice.dev" must be text: Kubernetes takes no other; put it in quotes: "4"`,
		"kind: Pod\nmetadata:\n  name: p\n  name: q\n":                                "line 4",
	} {
		pods, err := Parse([]byte(manifest), 0)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "podspec.") {
			t.Errorf("%d pods, error %v, want %q in\n%s", len(pods), err, want, manifest)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(pod("{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}"))
	f.Add("kind: Deployment\nmetadata: {name: w}\nspec: {template: {spec: {containers: [{name: c}]}}}\n")
	f.Add("kind: CronJob\nspec: {jobTemplate: {spec: {template: {}}}}\n")
	f.Add("&a {kind: List, items: [*a]}")
	f.Add("kind: Pod\nmetadata: {labels: {<<: {a: b}}, annotations: {a: ~}}\nspec: ~\n")
	f.Add("kind: Pod\nmetadata: {annotations: {<<: {? {a: b} : c}}}\n")
	f.Fuzz(func(t *testing.T, manifest string) {
		pods, err := Parse([]byte(manifest), gib)
		if (err == nil) != (len(pods) > 0) {
			t.Fatalf("%d pods, %v", len(pods), err)
		}
		for _, p := range pods {
			if p.Sandbox.QoS() == workload.UnknownQoS || len(p.Containers) == 0 {
				t.Fatalf("%+v", p)
			}
			for _, c := range p.Containers {
				if c.Resources.Shares < 2 || c.Resources.Quota < 0 || c.Resources.MemoryLimit < 0 {
					t.Fatalf("%+v", c)
				}
			}
		}
	})
}
