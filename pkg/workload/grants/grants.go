// Package grants parses the checkpoint in which the kubelet records what it has granted to the
// pods of its node. The runtime learns neither memory requests nor extended resources, so this
// is the only exact source on the node. The package does no I/O.
package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
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

// maxAmount is above any machine's CPUs in thousandths and memory in bytes, and far below an
// overflow of a sum of amounts. A larger amount counts as this one, and is no error: the kubelet
// admits any amount of a resource that its node does not offer, if a pod names its node itself
// (removeMissingExtendedResources in pkg/kubelet/lifecycle/predicate.go).
const maxAmount = 1 << 52

// Record holds what the kubelet has granted, by pod UID. A nil Record has no pods.
type Record struct {
	pods map[string]*pod
}

// pod holds what was granted to a pod.
type pod struct {
	text       string // the entry from which it was parsed
	containers map[string]amounts
	level      amounts // pod-level resources, for all containers together
	sum        amounts // sum of what its containers were granted
}

// amounts are the requests of a container or of a pod.
type amounts struct {
	cpu, batchCPU       workload.Optional[workload.MilliCPU]
	memory, batchMemory workload.Optional[int64]
	mid                 bool // some of the batch resources are mid resources
}

// checkpoint is the file (pkg/kubelet/allocation/state/checkpoint.go in Kubernetes). Its
// checksum is not verified: it is a hash of Go's debug output of the data, which is internal to
// the kubelet, and a truncated file is not valid JSON.
type checkpoint struct {
	Version string  `json:"version"` // "" up to 1.36, "v2" after
	Data    *string `json:"data"`    // JSON again
}

// list is a v1.ResourceRequirements. The API server sets a missing request to the limit, and
// the limit of an extended resource always equals its request.
type list struct {
	Requests map[string]json.RawMessage `json:"requests"`
}

// Parse parses the file. It understands the format of Kubernetes 1.33 to 1.36 and that of 1.37,
// which contains the former. The error for any other format says what differs. The package
// encoding/json bounds the depth.
func Parse(text []byte) (*Record, error) { return (*Record)(nil).Next(text) }

// Next parses a newer version of the file, as Parse does, and takes over the pods whose entries are still
// the same: parsing all of them takes milliseconds, for which the creation of a container waits.
func (r *Record) Next(text []byte) (*Record, error) {
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
		const emptyList = 64 // length up to which the list of v2 is empty
		if list, v2 := data["podList"]; len(data) == 0 || v2 && len(data) == 1 && len(list) < emptyList {
			return &Record{}, nil
		}
		return nil, errors.New(`has no "entries" in its "data"`)
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf(`has "entries" of another form: %w`, err)
	}
	next := &Record{pods: make(map[string]*pod, len(entries))}
	for uid, entry := range entries {
		if r != nil {
			if known := r.pods[uid]; known != nil && known.text == string(entry) {
				next.pods[uid] = known
				continue
			}
		}
		p, err := parseEntry(uid, entry)
		if err != nil {
			return nil, err
		}
		next.pods[uid] = p
	}
	return next, nil
}

func parseEntry(uid string, text json.RawMessage) (*pod, error) {
	var entry struct {
		ContainerResources map[string]list
		PodLevelResources  list
	}
	if err := json.Unmarshal(text, &entry); err != nil {
		return nil, fmt.Errorf(`has in its "entries" pod %.40q of another form: %w`, uid, err)
	}
	if entry.ContainerResources == nil {
		return nil, fmt.Errorf("has no ContainerResources for pod %.40q", uid)
	}
	p, err := podOf(uid, entry.ContainerResources, entry.PodLevelResources)
	if err != nil {
		return nil, fmt.Errorf("has for %w", err)
	}
	p.text = string(text)
	return p, nil
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

// Admitted returns the record that the kubelet will have of one pod by its manifest: the
// requests of its containers by name, and those of the pod itself.
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

// Pods returns the number of pods in the record. It includes pods that have ended, until the
// kubelet's next write.
func (r *Record) Pods() int {
	if r == nil {
		return 0
	}
	return len(r.pods)
}

// All yields the containers in the record, by pod UID and name, in no order.
func (r *Record) All() iter.Seq2[string, string] {
	return func(yield func(uid, container string) bool) {
		if r == nil {
			return
		}
		for uid, p := range r.pods {
			for name := range p.containers {
				if !yield(uid, name) {
					return
				}
			}
		}
	}
}

// isBatch reports whether a resource name is one under which a node offers CPU or memory to
// batch work: Sluice's own, Koordinator's or Katalyst's. CPU is in thousandths, even if the
// name does not say so.
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

// isMid reports whether a batch resource is sold from what the node leaves idle above the peak of a day.
func isMid(name string) bool {
	return strings.HasPrefix(name, "mid.sluice.dev/") || strings.HasPrefix(name, "kubernetes.io/mid-")
}

func read(l list) (amounts, error) {
	var a amounts
	for name, raw := range l.Requests {
		isBatchCPU, isBatchMemory := isBatch(name)
		if name != "cpu" && name != "memory" && !isBatchCPU && !isBatchMemory {
			continue
		}
		q, err := quantity.Parse(strings.Trim(string(raw), `"`))
		if errors.Is(err, quantity.ErrTooLarge) {
			q, err = math.MaxInt64, nil
		}
		if err != nil {
			return amounts{}, fmt.Errorf("the amount %s = %.40q, which is no amount of it", name, raw)
		}
		a.mid = a.mid || isMid(name) && q > 0
		switch {
		case name == "cpu":
			a.cpu = workload.Some(workload.MilliCPU(min(q, maxAmount)))
		case name == "memory":
			a.memory = workload.Some(min(q.Value(), maxAmount))
		case isBatchCPU:
			a.batchCPU = sum(a.batchCPU, workload.Some(workload.MilliCPU(min(q.Value(), maxAmount))))
		default:
			a.batchMemory = sum(a.batchMemory, workload.Some(min(q.Value(), maxAmount)))
		}
	}
	return a, nil
}

func (a *amounts) add(b amounts) {
	a.cpu, a.batchCPU = sum(a.cpu, b.cpu), sum(a.batchCPU, b.batchCPU)
	a.memory, a.batchMemory = sum(a.memory, b.memory), sum(a.batchMemory, b.batchMemory)
	a.mid = a.mid || b.mid
}

func sum[T ~int64](a, b workload.Optional[T]) workload.Optional[T] {
	return workload.Optional[T]{Value: min(a.Value+b.Value, maxAmount), Set: a.Set || b.Set}
}

// Of returns the record of a container.
func (r *Record) Of(uid, container string) workload.Granted {
	if r == nil || r.pods[uid] == nil {
		return workload.Granted{}
	}
	p := r.pods[uid]
	g := workload.Granted{Pod: true, PodLevel: p.level.cpu.Set || p.level.memory.Set, MostBatchCPU: p.sum.batchCPU.Value, MostBatchMemory: p.sum.batchMemory.Value, Mid: p.sum.mid}
	c, ok := p.containers[container]
	if !ok {
		return g // an init container, which Kubernetes up to 1.36 omits
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
	// What the pod was granted beyond its containers' own requests belongs to the containers
	// without a request.
	if !c.cpu.Set && p.level.cpu.Set {
		g.CPU = max(0, p.level.cpu.Value-others) / workload.MilliCPU(withoutCPU)
	}
	if !c.memory.Set && p.level.memory.Set {
		g.Memory = max(0, p.level.memory.Value-othersMemory) / int64(withoutMemory)
	}
	g.BatchCPU, g.BatchMemory = c.batchCPU.Value, c.batchMemory.Value
	return g
}
