package colocation

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Refusals is what keeps batch work from starting on the node, as far as it is in force.
type Refusals struct {
	SwitchedOff bool               // the operator has switched batch work off
	Batch       control.BatchState // by time windows and the switch, as the loop stepped last
	Rule        string             // why a rule of the configuration takes no batch work; "" it does
	Eviction    control.Refusal    // after an eviction
}

// Refusal is why no batch work may start on the node; the zero value is that it may.
type Refusal struct {
	NewBatch bool
	Until    time.Time // zero where no time is set
	Why      string
}

// NewBatch is whether, why and until when no batch work may start.
func (r *Refusals) NewBatch(now time.Time) Refusal {
	switch {
	case r.SwitchedOff:
		return Refusal{NewBatch: true, Why: "batch is switched off (sluice batch on ends it)"}
	case r.Batch.Closed:
		return Refusal{NewBatch: true, Why: r.Batch.Why}
	case r.Rule != "":
		return Refusal{NewBatch: true, Why: r.Rule}
	case now.Before(r.Eviction.Until):
		return Refusal{NewBatch: true, Why: r.Eviction.Why, Until: r.Eviction.Until}
	}
	return Refusal{}
}

// Err is the answer to a batch container that is about to be created; nil where it may be.
func (r Refusal) Err() error {
	switch {
	case !r.NewBatch:
		return nil
	case r.Until.IsZero():
		return fmt.Errorf("no batch work starts on this node now: %s", r.Why)
	}
	return fmt.Errorf("no batch work starts on this node until %s: %s", r.Until.Local().Format(time.TimeOnly), r.Why)
}

// RefusePod refuses the containers of pods that were evicted, which the kubelet would start
// again; nil for all others.
func RefusePod(evicted []control.RefusedPod, uid string, now time.Time) error {
	for _, p := range evicted {
		if p.UID == uid && now.Before(p.Until) {
			return fmt.Errorf("no container of the pod starts until %s: %s", p.Until.Local().Format(time.TimeOnly), p.Why)
		}
	}
	return nil
}
