// Package evict ends pods for the control loop: it only reports them, stops the pod through the
// runtime, or has the API server evict it. pkg/decide/control decides which pod has to go, when,
// and in which way.
package evict

import (
	"context"
	"time"
)

// Pod identifies a pod to evict.
type Pod struct {
	UID   string
	Ref   string        // "namespace/name"
	Grace time.Duration // time for the containers to end by themselves

	// These fields are for the API server alone.
	Why       string    // a sentence without its full stop
	DecidedAt time.Time // when the control loop chose the pod
	CoolDown  time.Time // no new batch work is wanted until then; zero for no cool-down
}

// Report evicts no pods: the decision itself already records in the log and the audit trail
// that the pod should be evicted.
type Report struct{}

// Evict does nothing.
func (Report) Evict(context.Context, Pod) error { return nil }
