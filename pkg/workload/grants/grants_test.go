package grants

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

const gib = 1 << 30

// file returns a checkpoint as the kubelet writes it: JSON within JSON.
func file(version, data string) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	if version != "" {
		version = fmt.Sprintf(`"version":%q,`, version)
	}
	return []byte(`{` + version + `"data":` + string(text) + `,"checksum":1178570812}`)
}

// entry returns pod u with these containers in the format of Kubernetes 1.36.
func entry(containers, level string) string {
	return `{"entries":{"u":{"ContainerResources":{` + containers + `},"PodLevelResources":` + level + `}}}`
}

func TestOf(t *testing.T) {
	t.Parallel()
	list := func(amounts string) string { return `{"limits":{` + amounts + `},"requests":{` + amounts + `}}` }
	for name, c := range map[string]struct {
		text      []byte
		container string
		want      workload.Granted
	}{
		"the kubelet's own test (1.33)": {
			[]byte(`{"data":"{\"entries\":{\"u\":{\"ContainerResources\":{\"main\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}`), "main",
			workload.Granted{Pod: true, Container: true, CPU: 1024000, Memory: 1024},
		},
		"a limit above the request": {
			file("", entry(`"main":{"limits":{"cpu":"4","memory":"8Gi"},"requests":{"cpu":"1500m","memory":"1Gi"}}`, "null")), "main",
			workload.Granted{Pod: true, Container: true, CPU: 1500, Memory: gib},
		},
		"a limit alone": {
			file("", entry(`"main":{"limits":{"cpu":"4"}}`, "null")), "main",
			workload.Granted{Pod: true, Container: true},
		},
		"Sluice's": {
			file("", entry(`"main":`+list(`"batch.sluice.dev/cpu":"2500","batch.sluice.dev/memory":"2Gi"`), "null")), "main",
			workload.Granted{Pod: true, Container: true, BatchCPU: 2500, BatchMemory: 2 * gib, MostBatchCPU: 2500, MostBatchMemory: 2 * gib},
		},
		"Koordinator's": {
			file("", entry(`"main":`+list(`"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"1Gi"`), "null")), "main",
			workload.Granted{Pod: true, Container: true, BatchCPU: 1000, BatchMemory: gib, MostBatchCPU: 1000, MostBatchMemory: gib},
		},
		"mid resources": {
			file("", entry(`"main":`+list(`"mid.sluice.dev/cpu":"500"`)+`,"side":`+list(`"batch.sluice.dev/cpu":"1000"`), "null")), "side",
			workload.Granted{Pod: true, Container: true, BatchCPU: 1000, MostBatchCPU: 1500, Mid: true},
		},
		"Koordinator's mid memory alone": {
			file("", entry(`"main":`+list(`"kubernetes.io/mid-memory":"1Gi"`), "null")), "main",
			workload.Granted{Pod: true, Container: true, BatchMemory: gib, MostBatchMemory: gib, Mid: true},
		},
		"no mid resources": {
			file("", entry(`"main":`+list(`"kubernetes.io/mid-cpu":"0","kubernetes.io/batch-cpu":"1k"`), "null")), "main",
			workload.Granted{Pod: true, Container: true, BatchCPU: 1000, MostBatchCPU: 1000},
		},
		"Katalyst's": {
			file("", entry(`"main":`+list(`"resource.katalyst.kubewharf.io/reclaimed_millicpu":"3000","resource.katalyst.kubewharf.io/reclaimed_memory":"1Gi","nvidia.com/gpu":"1"`), "null")), "main",
			workload.Granted{Pod: true, Container: true, BatchCPU: 3000, BatchMemory: gib, MostBatchCPU: 3000, MostBatchMemory: gib},
		},
		"an init container that isn't recorded": {
			file("", entry(`"a":`+list(`"batch.sluice.dev/cpu":"1000"`)+`,"b":`+list(`"batch.sluice.dev/cpu":"500","batch.sluice.dev/memory":"1Gi"`), "null")), "init",
			workload.Granted{Pod: true, MostBatchCPU: 1500, MostBatchMemory: gib},
		},
		"pod-level requests, one container": {
			file("", entry(`"main":{}`, list(`"cpu":"2","memory":"4Gi"`))), "main",
			workload.Granted{Pod: true, Container: true, CPU: 2000, Memory: 4 * gib, PodLevel: true},
		},
		"pod-level requests beyond a container's own": {
			file("", entry(`"a":{},"b":{"requests":{"cpu":"500m","memory":"1Gi"}},"c":{}`, list(`"cpu":"2500m","memory":"3Gi"`))), "a",
			workload.Granted{Pod: true, Container: true, CPU: 1000, Memory: gib, PodLevel: true},
		},
		"a container's own, where the pod has requests": {
			file("", entry(`"a":{},"b":{"requests":{"cpu":"500m"}}`, list(`"cpu":"2500m"`))), "b",
			workload.Granted{Pod: true, Container: true, CPU: 500, PodLevel: true},
		},
		"1.37, with the pods": {
			file("v2", `{"podList":"`+strings.Repeat("CgA", 100)+`","entries":{"u":{"ContainerResources":{"main":`+list(`"cpu":"300"`)+`},"PodLevelResources":null,"EmptyDirVolumeLimits":{"v":"1Gi"}}}}`), "main",
			workload.Granted{Pod: true, Container: true, CPU: 300000},
		},
		"another pod":                {file("", `{"entries":{"x":{"ContainerResources":{}}}}`), "main", workload.Granted{}},
		"no pod":                     {file("", `{}`), "main", workload.Granted{}},
		"no pod, 1.37":               {file("v2", `{"podList":"CgQKABIA"}`), "main", workload.Granted{}},
		"more than any sum may hold": {file("", entry(`"a":`+list(`"batch.sluice.dev/cpu":"4503599627370496"`)+`,"b":`+list(`"batch.sluice.dev/cpu":"4503599627370496"`), "null")), "x", workload.Granted{Pod: true, MostBatchCPU: maxAmount}},
		"absurd amounts": {
			file("", entry(`"main":`+list(`"cpu":"5P","memory":"8E","resource.katalyst.kubewharf.io/reclaimed_memory":"9223372036854775807","kubernetes.io/batch-memory":"1e31"`)+`,"b":`+list(`"batch.sluice.dev/memory":"1Gi"`), "null")), "main",
			workload.Granted{Pod: true, Container: true, CPU: maxAmount, Memory: maxAmount, BatchMemory: maxAmount, MostBatchMemory: maxAmount},
		},
		"beside absurd amounts": {
			file("", `{"entries":{"x":{"ContainerResources":{"main":`+list(`"resource.katalyst.kubewharf.io/reclaimed_memory":"5P"`)+`}},"u":{"ContainerResources":{"main":`+list(`"batch.sluice.dev/cpu":"500"`)+`}}}}`), "main",
			workload.Granted{Pod: true, Container: true, BatchCPU: 500, MostBatchCPU: 500},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Of("u", c.container); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A record that can't be understood is an error, and never a record in which a part is missing.
func TestNotUnderstood(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"cut off":             {file("", entry(`"main":{}`, "null"))[:40], "not the JSON object"},
		"empty":               {nil, "not the JSON object"},
		"a later version":     {file("v3", `{"entries":{}}`), `is of version "v3"`},
		"a CPU manager's":     {[]byte(`{"policyName":"none","checksum":1}`), `has no "data"`},
		"data of another one": {file("", `x`), `"data" that is not a JSON object`},
		"1.32's":              {file("", `{"allocationEntries":{}}`), `has no "entries"`},
		"pods alone":          {file("v2", `{"podList":"`+strings.Repeat("CgA", 100)+`"}`), `has no "entries"`},
		"entries as a list":   {file("", `{"entries":[]}`), "of another form"},
		"another entry":       {file("", `{"entries":{"u":{"Containers":[]}}}`), `no ContainerResources for pod "u"`},
		"no amount":           {file("", entry(`"main":{"requests":{"cpu":"many"}}`, "null")), `for container "main" of pod "u" the amount cpu`},
		"a negative amount":   {file("", entry(`"main":{"requests":{"memory":"-1"}}`, "null")), "the amount memory"},
		"of the pod":          {file("", entry(``, `{"requests":{"cpu":"x"}}`)), `for pod "u" the amount cpu`},
		"too deep":            {file("", strings.Repeat(`{"a":`, 20000)), "not a JSON object"},
		"too large":           {make([]byte, MaxSize+1), "at most"},
	} {
		if r, err := Parse(c.text); r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, r, err, c.want)
		}
	}
	var none *Record
	if none.Pods() != 0 || none.Of("u", "main") != (workload.Granted{}) {
		t.Error("no record knows a pod")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file("", entry(`"main":{"requests":{"cpu":"2","batch.sluice.dev/cpu":"2500"}},"b":{}`, `{"requests":{"cpu":"4","memory":"1Gi"}}`)))
	f.Add(file("v2", `{"podList":"CgQKABIA","entries":{"u":{"ContainerResources":{"main":{}}}}}`))
	f.Add([]byte(`{"data":"{}","checksum":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if (r == nil) != (err != nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if err != nil {
			return
		}
		for uid, p := range r.pods {
			for name := range p.containers {
				g := r.Of(uid, name)
				if !g.Pod || !g.Container || g.CPU < 0 || g.Memory < 0 || g.BatchCPU < 0 || g.BatchMemory < 0 ||
					g.BatchCPU > g.MostBatchCPU || g.BatchMemory > g.MostBatchMemory {
					t.Fatalf("%q of %q: %+v", name, uid, g)
				}
			}
		}
	})
}

// BenchmarkParse parses the record of a full node: 250 pods of 4 containers.
// records returns two versions of the file of a node with 250 pods of four containers. In the second one
// pod 0 has ended, pod 1 has another request, and pod 250 is new.
func records() (before, after []byte) {
	version := func(first, last, milliCPU int) []byte {
		var entries []string
		for i := first; i <= last; i++ {
			request := 500
			if i == 1 {
				request = milliCPU
			}
			var containers []string
			for c := range 4 {
				containers = append(containers, fmt.Sprintf(`"c%d":{"limits":{"cpu":"2","memory":"4Gi"},"requests":{"cpu":"%dm","memory":"1Gi"}}`, c, request))
			}
			entries = append(entries, fmt.Sprintf(`"%036d":{"ContainerResources":{%s},"PodLevelResources":null}`, i, strings.Join(containers, ",")))
		}
		return file("", `{"entries":{`+strings.Join(entries, ",")+`}}`)
	}
	return version(0, 249, 500), version(1, 250, 600)
}

// A version that follows another one is understood as it is alone.
func TestNext(t *testing.T) {
	t.Parallel()
	before, after := records()
	first, err := Parse(before)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse(after)
	if err != nil {
		t.Fatal(err)
	}
	got, err := first.Next(after)
	if err != nil || !reflect.DeepEqual(got, want) || reflect.DeepEqual(got, first) {
		t.Errorf("%v, or what has changed is missing, or what has not", err)
	}
	if got, err := first.Next([]byte(`{"data":"{}"}`)); err != nil || got.Pods() != 0 {
		t.Errorf("%d pods in a file without any, %v", got.Pods(), err)
	}
}

// BenchmarkParse parses the file alone, and as the one that follows another version.
func BenchmarkParse(b *testing.B) {
	before, after := records()
	first, err := Parse(before)
	if err != nil {
		b.Fatal(err)
	}
	for name, known := range map[string]*Record{"first": nil, "next": first} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(after)))
			for b.Loop() {
				if _, err := known.Next(after); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAll(t *testing.T) {
	t.Parallel()
	r, err := Admitted("u", map[string]Requests{"a": {"cpu": "1"}, "b": nil}, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for uid, container := range r.All() {
		found[uid+"/"+container] = true
	}
	if len(found) != 2 || !found["u/a"] || !found["u/b"] {
		t.Errorf("found %v", found)
	}
	for uid := range (*Record)(nil).All() {
		t.Errorf("no record has pod %s", uid)
	}
}
