package annotation

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// koordinatorResctrl reads a share of cache and bandwidth for the pod alone.
func (r *reader) koordinatorResctrl(text, source string) {
	type part struct {
		All struct {
			Percent *int64  `json:"percent"`
			Range   []int64 `json:"range"`
		} `json:"schemata"`
		ByCache []json.RawMessage `json:"schemataPerCache"`
	}
	var c struct {
		LLC part `json:"llc"`
		MB  part `json:"mb"`
	}
	if !r.json(source, text, &c) {
		return
	}
	if len(c.LLC.ByCache)+len(c.MB.ByCache) > 0 {
		r.warn(source, "has a schemataPerCache, which Sluice doesn't read: the share of all caches counts")
	}
	var own workload.RDTShare
	var parts [2]string
	if span := c.LLC.All.Range; len(span) > 0 {
		if len(span) != 2 || span[0] < 0 || span[0] >= span[1] || span[1] > 100 {
			r.refuse(&candidate{source: source, value: fmt.Sprint(span)}, "llc range must be two percentages, the first below the second, like [20, 80]")
			return
		}
		own.CacheFrom, own.CacheTo = int(span[0]), int(span[1])
		parts[0] = fmt.Sprintf("L3 %d-%d%%", own.CacheFrom, own.CacheTo)
	}
	if !r.inRange(source, "mb percent", c.MB.All.Percent, 1, 100) {
		return
	}
	if own.Bandwidth = or(c.MB.All.Percent, 0); own.Bandwidth > 0 {
		parts[1] = fmt.Sprintf("MB %d%%", own.Bandwidth)
	}
	if own != (workload.RDTShare{}) {
		r.add(candidate{key: rdtClassKey, value: describe(parts[:]...), parsed: &workload.Request{Tuning: workload.Tuning{RDT: workload.RDT{Own: own}}},
			source: source, origin: koordinator, soft: true})
	}
}

// batchLists are the resource lists of one container.
type batchLists struct {
	Requests map[string]json.RawMessage `json:"requests"`
	Limits   map[string]json.RawMessage `json:"limits"`
}

// koordinatorBatch reads the resources of a pod with batch resources. Koordinator's webhook
// hides them from the kubelet. If the kubelet sees requests in the pod, or a limit, these are
// the grant.
func (r *reader) koordinatorBatch(text, source string) {
	var spec struct {
		Containers map[string]batchLists `json:"containers"`
	}
	if !r.json(source, text, &spec) {
		return
	}
	lists := spec.Containers[r.container.Name]
	request, ok1 := r.batchAmount(source, lists.Requests, "cpu")
	limit, ok2 := r.batchAmount(source, lists.Limits, "cpu")
	memoryRequest, ok3 := r.batchAmount(source, lists.Requests, "memory")
	memory, ok4 := r.batchAmount(source, lists.Limits, "memory")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return
	}
	var b workload.Batch
	best := r.pod.QoS() == workload.BestEffort
	if best && request > 0 {
		b.CPURequest = workload.Some(workload.MilliCPU(request))
	} else if request > 0 {
		r.warn(source, "requests batch CPU, but the kubelet knows requests of this pod: those count")
	}
	if best && memoryRequest > 0 {
		b.MemoryRequest = workload.Some(memoryRequest)
	}
	if limit > 0 {
		milli := workload.MilliCPU(limit)
		if c := &r.container.Resources; c.Quota > 0 && c.Period > 0 {
			milli = min(milli, workload.MilliCPU(c.Quota*1000/int64(c.Period)))
		}
		b.CPULimit = workload.Some(max(1, milli))
	}
	if memory > 0 {
		if kubelet := r.container.Resources.MemoryLimit; kubelet > 0 {
			memory = min(memory, kubelet)
		}
		b.MemoryLimit = workload.Some(memory)
	}
	if b != (workload.Batch{}) {
		r.tuning(batchKey, spellBatch(&b), workload.Tuning{Batch: b}, source, koordinator)
	}
}

// maxBatch is above any machine's CPUs in thousandths and memory in bytes, and far below an
// overflow.
const maxBatch = 1 << 52

// batchAmount returns a container's amount of a batch or mid resource; 0 for none.
func (r *reader) batchAmount(source string, list map[string]json.RawMessage, resource string) (int64, bool) {
	for _, name := range [...]string{"kubernetes.io/batch-" + resource, "kubernetes.io/mid-" + resource} {
		text := strings.Trim(string(list[name]), `"`)
		if text == "" {
			continue
		}
		amount, err := quantity.Parse(text)
		if err == nil && amount.Value() > maxBatch {
			err = fmt.Errorf("must be at most %d", int64(maxBatch))
		}
		if err != nil {
			r.refuse(&candidate{source: source, value: text}, name+" "+err.Error())
			return 0, false
		}
		return amount.Value(), true
	}
	return 0, true
}
