// Package grants reads what the kubelet has granted to the pods of its node, from the
// checkpoint that it keeps of it. The runtime is told neither requests of memory nor any
// extended resource, so this is the only exact source on the node. Pure.
package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// File is the kubelet's checkpoint, below its root folder. Kubernetes 1.33 and later
// write it by default (feature gate InPlacePodVerticalScaling). The kubelet writes a
// pod's entry when it admits the pod, which is before it asks the runtime for a sandbox
// (AddPod in pkg/kubelet/allocation/allocation_manager.go), and rewrites it before it
// carries out a resize. It replaces the file by renaming a finished one over it.
const File = "allocated_pods_state"

// MaxSize bounds the file in bytes. A pod with one container takes about 200 bytes, and
// Kubernetes 1.37, which adds the pods themselves, some ten thousand: 250 pods are far
// below it.
const MaxSize = 32 << 20

// maxAmount is beyond any machine's CPUs in thousandths and memory in bytes, and far
// from an overflow where amounts are added.
const maxAmount = 1 << 52

// Record is what the kubelet has granted, by pod UID. A nil Record knows no pod.
type Record struct {
	pods map[string]*pod
}

// pod is what was granted to a pod.
type pod struct {
	containers map[string]amounts
	level      amounts // pod-level resources: for all containers together
	sum        amounts // what its containers were granted together
}

// amounts are the requests of a container, or of a pod.
type amounts struct {
	cpu, batchCPU       workload.Optional[workload.MilliCPU]
	memory, batchMemory workload.Optional[int64]
}

// checkpoint is the file (pkg/kubelet/allocation/state/checkpoint.go in kubernetes). Its
// checksum is left alone: it hashes Go's debug output of the data, which is the
// kubelet's own affair, and a file that was cut off is no JSON.
type checkpoint struct {
	Version string  `json:"version"` // "" up to 1.36, "v2" after
	Data    *string `json:"data"`    // JSON again
}

// list is a v1.ResourceRequirements. The API server sets a request equal to the limit
// where a pod gives a limit alone, and extended resources have no other limit.
type list struct {
	Requests map[string]json.RawMessage `json:"requests"`
}

// Parse reads the file. It understands the format of Kubernetes 1.33 to 1.36 and that of
// 1.37, which still has the former within it; anything else is an error that says what
// differs. Of what it reads, encoding/json bounds the depth.
func Parse(text []byte) (*Record, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("has %d bytes, and at most %d are read", len(text), MaxSize)
	}
	var c checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("is not the JSON object that kubelets are known to write: %w", err)
	}
	switch {
	case c.Version != "" && c.Version != "v2":
		return nil, fmt.Errorf("is of version %.40q, and only the first and v2 are known", c.Version)
	case c.Data == nil:
		return nil, errors.New(`has no "data"`)
	}
	var data map[string]json.RawMessage
	if err := json.Unmarshal([]byte(*c.Data), &data); err != nil {
		return nil, fmt.Errorf(`has "data" that is not a JSON object: %w`, err)
	}
	text, ok := data["entries"]
	if !ok {
		const emptyList = 64 // bytes, which v2 may write where there is no pod
		if list, v2 := data["podList"]; len(data) == 0 || v2 && len(data) == 1 && len(list) < emptyList {
			return &Record{}, nil
		}
		return nil, errors.New(`has no "entries" in its "data"`)
	}
	var entries map[string]struct {
		ContainerResources map[string]list
		PodLevelResources  list
	}
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf(`has "entries" of another form: %w`, err)
	}
	r := &Record{pods: make(map[string]*pod, len(entries))}
	for uid, entry := range entries {
		if entry.ContainerResources == nil {
			return nil, fmt.Errorf("has no ContainerResources for pod %.40q", uid)
		}
		p, err := podOf(uid, entry.ContainerResources, entry.PodLevelResources)
		if err != nil {
			return nil, fmt.Errorf("has for %w", err)
		}
		r.pods[uid] = p
	}
	return r, nil
}

func podOf(uid string, containers map[string]list, level list) (*pod, error) {
	p := &pod{containers: make(map[string]amounts, len(containers))}
	var err error
	if p.level, err = read(level); err != nil {
		return nil, fmt.Errorf("pod %.40q %w", uid, err)
	}
	for name, resources := range containers {
		a, err := read(resources)
		if err != nil {
			return nil, fmt.Errorf("container %.63q of pod %.40q %w", name, uid, err)
		}
		p.containers[name] = a
		p.sum.add(a)
	}
	return p, nil
}

// Requests are amounts by the names of resources, as a manifest has them: "500m".
type Requests map[string]string

// Admitted is the record that the kubelet will have of one pod, by its manifest: the
// requests of its containers by their names, and those of the pod itself.
func Admitted(uid string, containers map[string]Requests, level Requests) (*Record, error) {
	lists := make(map[string]list, len(containers))
	for name, requests := range containers {
		lists[name] = requests.list()
	}
	p, err := podOf(uid, lists, level.list())
	if err != nil {
		return nil, fmt.Errorf("for %w", err)
	}
	return &Record{pods: map[string]*pod{uid: p}}, nil
}

func (r Requests) list() list {
	l := list{Requests: make(map[string]json.RawMessage, len(r))}
	for name, amount := range r {
		l.Requests[name] = json.RawMessage(amount)
	}
	return l
}

// Pods is how many pods the record has, or has had: the kubelet drops those that ended
// with its next write.
func (r *Record) Pods() int {
	if r == nil {
		return 0
	}
	return len(r.pods)
}

// isBatch tells the names under which a node sells CPU and memory to batch work:
// Sluice's own, Koordinator's and Katalyst's. CPU is in thousandths, also where the name
// doesn't say so.
func isBatch(name string) (cpu, memory bool) {
	switch name {
	case "batch.sluice.dev/cpu", "mid.sluice.dev/cpu", "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu",
		"resource.katalyst.kubewharf.io/reclaimed_millicpu":
		return true, false
	case "batch.sluice.dev/memory", "mid.sluice.dev/memory", "kubernetes.io/batch-memory", "kubernetes.io/mid-memory",
		"resource.katalyst.kubewharf.io/reclaimed_memory":
		return false, true
	}
	return false, false
}

func read(l list) (amounts, error) {
	var a amounts
	for name, raw := range l.Requests {
		isBatchCPU, isBatchMemory := isBatch(name)
		if name != "cpu" && name != "memory" && !isBatchCPU && !isBatchMemory {
			continue
		}
		q, err := quantity.Parse(strings.Trim(string(raw), `"`))
		if err != nil || q.Value() > maxAmount || name == "cpu" && int64(q) > maxAmount {
			return amounts{}, fmt.Errorf("the amount %s = %.40q, which is no amount of it", name, raw)
		}
		switch {
		case name == "cpu":
			a.cpu = workload.Some(workload.MilliCPU(q))
		case name == "memory":
			a.memory = workload.Some(q.Value())
		case isBatchCPU:
			a.batchCPU = workload.Some(a.batchCPU.Value + workload.MilliCPU(q.Value()))
		default:
			a.batchMemory = workload.Some(a.batchMemory.Value + q.Value())
		}
	}
	return a, nil
}

func (a *amounts) add(b amounts) {
	a.cpu, a.batchCPU = sum(a.cpu, b.cpu), sum(a.batchCPU, b.batchCPU)
	a.memory, a.batchMemory = sum(a.memory, b.memory), sum(a.batchMemory, b.batchMemory)
}

func sum[T ~int64](a, b workload.Optional[T]) workload.Optional[T] {
	return workload.Optional[T]{Value: min(a.Value+b.Value, maxAmount), Set: a.Set || b.Set}
}

// Of is what the record says of a container.
func (r *Record) Of(uid, container string) workload.Granted {
	if r == nil || r.pods[uid] == nil {
		return workload.Granted{}
	}
	p := r.pods[uid]
	g := workload.Granted{Pod: true, PodLevel: p.level.cpu.Set || p.level.memory.Set, MostBatchCPU: p.sum.batchCPU.Value, MostBatchMemory: p.sum.batchMemory.Value}
	c, ok := p.containers[container]
	if !ok {
		return g // an init container, which Kubernetes up to 1.36 leaves out
	}
	others := workload.MilliCPU(0)
	var othersMemory int64
	withoutCPU, withoutMemory := 0, 0
	for _, other := range p.containers {
		others, othersMemory = others+other.cpu.Value, othersMemory+other.memory.Value
		if !other.cpu.Set {
			withoutCPU++
		}
		if !other.memory.Set {
			withoutMemory++
		}
	}
	g.Container = true
	g.CPU, g.Memory = c.cpu.Value, c.memory.Value
	// What the pod was granted as a whole, beyond its containers' own requests, belongs to
	// those without one.
	if !c.cpu.Set && p.level.cpu.Set {
		g.CPU = max(0, p.level.cpu.Value-others) / workload.MilliCPU(withoutCPU)
	}
	if !c.memory.Set && p.level.memory.Set {
		g.Memory = max(0, p.level.memory.Value-othersMemory) / int64(withoutMemory)
	}
	g.BatchCPU, g.BatchMemory = c.batchCPU.Value, c.batchMemory.Value
	return g
}
