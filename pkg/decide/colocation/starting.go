package colocation

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// LeastStart is the memory in bytes that a container needs to start if it does not say how
	// much it needs.
	LeastStart = 128 << 20
	// startTime is how long a container may take from its first instruction until it uses the
	// memory that was reserved for it.
	startTime = 30 * time.Second
)

// MemoryToStart returns the memory in bytes that a batch container needs to start: its grant,
// or else LeastStart but at most the container's limit.
func MemoryToStart(kubeletsLimit int64, r *workload.Request) int64 {
	if _, granted := r.Grant(); granted > 0 {
		return granted
	}
	if limit := MemoryLimit(kubeletsLimit, r); limit > 0 {
		return min(limit, LeastStart)
	}
	return LeastStart
}

// RefuseMemory returns an error for a batch container that needs more bytes than there is room
// for. The goal is what all batch work may hold.
func RefuseMemory(need, room, goal int64) error {
	if room >= need {
		return nil
	}
	return fmt.Errorf("no batch container starts on this node now that needs %s of memory: batch work may hold %s beside what services use, and %s of that are left; the kubelet tries again",
		control.MemoryText(need), control.MemoryText(goal), control.MemoryText(max(room, 0)))
}

// Reservations holds the memory that is reserved for batch containers while they start. No
// limit takes it away until a container uses it or has had enough time to. The zero value
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

// Reserve reserves memory for a container that is being created. Its pod's cgroup is podPath,
// whose parent is above.
func (r *Reservations) Reserve(now time.Time, id, above, podPath string, bytes int64) {
	if r.byID == nil {
		r.byID = map[string]reservation{}
	}
	r.byID[id] = reservation{bytes: bytes, until: now.Add(CreationTime), above: above, podPath: podPath}
	r.Admitted += bytes
}

// Started extends a reservation by the time that the container needs from its first instruction
// on.
func (r *Reservations) Started(now time.Time, id string) {
	if of, ok := r.byID[id]; ok {
		of.until = now.Add(startTime)
		r.byID[id] = of
	}
}

// Owed removes the reservations of containers that are gone or have had enough time. It returns
// how many bytes of the others are not used yet, in total and by the cgroups whose limits must
// leave room for them.
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
