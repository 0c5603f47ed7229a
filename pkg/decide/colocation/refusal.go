package colocation

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Refusals are the reasons in force why batch work must not start on the node.
type Refusals struct {
	Switch   control.Switch     // that is in force
	Batch    control.BatchState // from the time windows and the switch, at the loop's last step
	Rule     string             // why a configured rule refuses batch work; "" if none does
	Eviction control.Refusal    // after an eviction
}

// Refusal says why no batch work may start on the node. The zero value allows it.
type Refusal struct {
	NewBatch bool
	Until    time.Time // zero if no end is known
	Why      string
}

// NewBatch returns whether batch work may start, and if not, why and until when.
func (r *Refusals) NewBatch(now time.Time) Refusal {
	switch {
	case r.Switch.To == control.SwitchOff && r.Switch.Fleet:
		return Refusal{NewBatch: true, Why: "batch is switched off by the fleet's switch (the ConfigMap sluice-switch ends it)"}
	case r.Switch.To == control.SwitchOff:
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

// Err returns the error for a batch container that is about to be created; nil if it may be
// created.
func (r Refusal) Err() error {
	switch {
	case !r.NewBatch:
		return nil
	case r.Until.IsZero():
		return fmt.Errorf("no batch work starts on this node now: %s", r.Why)
	}
	return fmt.Errorf("no batch work starts on this node until %s: %s", r.Until.Local().Format(time.TimeOnly), r.Why)
}

// RefusePod returns an error for a container of an evicted pod, which the kubelet would
// otherwise start again, and nil for all others.
func RefusePod(evicted []control.RefusedPod, uid string, now time.Time) error {
	for _, p := range evicted {
		if p.UID == uid && now.Before(p.Until) {
			return fmt.Errorf("no container of the pod starts until %s: %s", p.Until.Local().Format(time.TimeOnly), p.Why)
		}
	}
	return nil
}
