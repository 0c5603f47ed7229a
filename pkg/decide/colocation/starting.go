package colocation

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// LeastStart is the memory, in bytes, that a container needs to start which doesn't say
	// what it needs.
	LeastStart = 128 << 20
	// startTime is how long a container may take, from its first instruction, until it holds
	// what was reserved for it.
	startTime = 30 * time.Second
)

// MemoryToStart is the memory that a batch container needs to start, in bytes: what it was
// granted. Without a grant it is little, and at most the container's limit.
func MemoryToStart(kubeletsLimit int64, r *workload.Request) int64 {
	if _, granted := r.Grant(); granted > 0 {
		return granted
	}
	if limit := MemoryLimit(kubeletsLimit, r); limit > 0 {
		return min(limit, LeastStart)
	}
	return LeastStart
}

// RefuseMemory refuses a batch container that needs more bytes than there is room for. Goal
// is what all batch work may hold.
func RefuseMemory(need, room, goal int64) error {
	if room >= need {
		return nil
	}
	return fmt.Errorf("no batch container starts on this node now that needs %s of memory: batch work may hold %s beside what services use, and %s of that are left; the kubelet tries again",
		control.MemoryText(need), control.MemoryText(goal), control.MemoryText(max(room, 0)))
}

// Reservations is the memory that is reserved for batch containers as they are created.
// Until a container holds that, or should hold it, no limit takes it away. The zero value
// reserves nothing.
type Reservations struct {
	Admitted int64 // bytes reserved since the memory controller's last step

	byID map[string]reservation
}

type reservation struct {
	bytes          int64
	until          time.Time
	above, podPath string
}

// Reserve reserves memory for a container that is being created, whose pod is in the cgroup
// podPath, below above.
func (r *Reservations) Reserve(now time.Time, id, above, podPath string, bytes int64) {
	if r.byID == nil {
		r.byID = map[string]reservation{}
	}
	r.byID[id] = reservation{bytes: bytes, until: now.Add(CreationTime), above: above, podPath: podPath}
	r.Admitted += bytes
}

// Started extends a reservation to the time that the container needs from its first
// instruction on.
func (r *Reservations) Started(now time.Time, id string) {
	if of, ok := r.byID[id]; ok {
		of.until = now.Add(startTime)
		r.byID[id] = of
	}
}

// Owed forgets the reservations of containers that are gone or had time enough. It returns
// how many bytes of the others aren't held yet, in all and by the cgroups whose limits have
// to leave room for them.
func (r *Reservations) Owed(now time.Time, v *NodeView, exists func(id string) bool) (owed int64, by map[string]knobs.Bytes) {
	by = map[string]knobs.Bytes{}
	for id, of := range r.byID {
		if !exists(id) || now.After(of.until) {
			delete(r.byID, id)
			continue
		}
		left := of.bytes
		if seen := v.Container(id); seen != nil {
			left -= seen.Container.Memory.Current
		}
		if left > 0 {
			owed += left
			by[of.above] += knobs.Bytes(left)
			by[of.podPath] += knobs.Bytes(left)
		}
	}
	return owed, by
}
