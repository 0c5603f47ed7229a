package annotation

import (
	"errors"
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// grant reads grant.sluice.dev, in which the admission webhook records what a pod's containers
// were granted of the node's batch resources.
func (r *reader) grant(text, source string) {
	a := candidate{key: batchKey, value: text, source: source, origin: ownAnnotation}
	if len(text) > maxLength {
		r.refuse(&a, tooLong(len(text)))
		return
	}
	b, err := parseGrant(text, r.container.Name)
	switch {
	case err != nil:
		r.refuse(&a, err.Error())
	case b == (workload.Batch{}):
	case r.pod.QoS() != workload.BestEffort:
		r.warn(source, "grants batch resources, but the kubelet knows requests of this pod: those count")
	default:
		a.value, a.parsed = spellBatch(&b), &workload.Request{Tuning: workload.Tuning{Batch: b}}
		r.add(a)
	}
}

// parseGrant reads one container's entry in a mapping of containers. It leaves the entries of
// others unchecked.
func parseGrant(text, container string) (b workload.Batch, err error) {
	node, err := decodeMapping(text, `main: {cpu: "2", memory: 4Gi}`)
	if err != nil {
		return b, err
	}
	found := false
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value != container {
			continue
		}
		if found {
			return b, fmt.Errorf("%s is there twice", quote(container))
		}
		found = true
		err := readMapping(node.Content[i+1], []field{
			grantField("cpu", func(a quantity.Amount) { b.CPURequest = workload.Some(workload.MilliCPU(a)) }),
			grantField("memory", func(a quantity.Amount) {
				b.MemoryRequest = workload.Some(a.Value())
				b.MemoryLimit = b.MemoryRequest
			}),
		})
		if err != nil {
			return workload.Batch{}, fmt.Errorf("%s: %w", quote(container), err)
		}
	}
	return b, nil
}

// grantField parses a Kubernetes quantity above 0.
func grantField(name string, into func(quantity.Amount)) field {
	return field{name, func(node *yaml.Node) error {
		amount, err := quantity.Parse(scalar(node))
		if err != nil {
			return err
		}
		if amount < 1 || amount.Value() > maxBatch || name == "cpu" && int64(amount) > maxBatch {
			return errors.New("must be above 0, and no more than a machine has")
		}
		into(amount)
		return nil
	}}
}

// batch determines the container's grant of the node's batch resources. The kubelet's record
// takes precedence over any annotation, which a tenant may have written. Without the record an
// annotation counts for BE only, whose pods share what others leave.
func (r *reader) batch() {
	settings := len(r.req.Keys)
	said := r.resolve(batchKey)
	b, g := &r.req.Batch, &r.facts.Granted
	if r.pod.QoS() != workload.BestEffort {
		return
	}
	source := "the kubelet's record"
	switch {
	case g.Container:
		r.cut(said, b, g.BatchCPU, g.BatchMemory)
		bound(b, g.BatchCPU, g.BatchMemory)
		b.CPURequest = workload.Optional[workload.MilliCPU]{Value: g.BatchCPU, Set: g.BatchCPU > 0}
		b.MemoryRequest = workload.Optional[int64]{Value: g.BatchMemory, Set: g.BatchMemory > 0}
		if !b.MemoryLimit.Set {
			b.MemoryLimit = b.MemoryRequest
		}
	case said == nil:
		return
	case g.Pod: // the container is an init container
		r.cut(said, b, g.MostBatchCPU, g.MostBatchMemory)
		bound(b, g.MostBatchCPU, g.MostBatchMemory)
		r.req.From = workload.FromAnnotation
		source = said.source + ", within what the kubelet's record grants the pod"
	case r.req.Class != workload.BE:
		if b.CPURequest.Set || b.MemoryRequest.Set {
			r.warn(said.source, "requests batch resources, which counts for class BE alone where the kubelet's record doesn't show them: only lower limits count")
		}
		b.CPURequest, b.MemoryRequest = workload.Optional[workload.MilliCPU]{}, workload.Optional[int64]{}
		return
	default:
		r.req.From = workload.FromAnnotation
		return
	}
	r.req.Keys = r.req.Keys[:settings]
	if *b != (workload.Batch{}) {
		r.record(&candidate{key: batchKey, value: spellBatch(b), source: source})
	}
}

// bound lowers what an annotation claims to what was granted. A lower limit in the annotation
// stays, since it only takes away.
func bound(b *workload.Batch, cpu workload.MilliCPU, memory int64) {
	b.CPURequest, b.MemoryRequest = atMost(b.CPURequest, cpu), atMost(b.MemoryRequest, memory)
	if cpu > 0 {
		b.CPULimit = atMost(b.CPULimit, cpu)
	}
	if memory > 0 {
		b.MemoryLimit = atMost(b.MemoryLimit, memory)
	}
}

func atMost[T workload.MilliCPU | int64](o workload.Optional[T], most T) workload.Optional[T] {
	o.Value = min(o.Value, most)
	o.Set = o.Set && o.Value > 0
	return o
}

// cut warns of an annotation that claims more than the kubelet has granted.
func (r *reader) cut(said *candidate, b *workload.Batch, cpu workload.MilliCPU, memory int64) {
	if said == nil || b.CPURequest.Value <= cpu && b.MemoryRequest.Value <= memory {
		return
	}
	r.warn(said.source, fmt.Sprintf("claims %s of batch resources, and the kubelet's record grants %s: the record counts",
		said.value, spellBatch(&workload.Batch{CPURequest: workload.Some(cpu), MemoryRequest: workload.Some(memory)})))
	r.warnings[len(r.warnings)-1].Cut = true
}

// spellBatch formats a grant for a message.
func spellBatch(b *workload.Batch) string {
	var said [4]string
	if b.CPURequest.Set {
		said[0] = fmt.Sprintf("CPU %s", b.CPURequest.Value)
	}
	if b.CPULimit.Set && b.CPULimit != b.CPURequest {
		said[1] = fmt.Sprintf("CPU limit %s", b.CPULimit.Value)
	}
	if b.MemoryRequest.Set {
		said[2] = "memory " + quantity.Bytes(b.MemoryRequest.Value)
	}
	if b.MemoryLimit.Set && b.MemoryLimit != b.MemoryRequest {
		said[3] = "memory limit " + quantity.Bytes(b.MemoryLimit.Value)
	}
	return describe(said[:]...)
}
