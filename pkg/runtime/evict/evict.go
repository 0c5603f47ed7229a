// Package evict ends pods for the control loop: it either only reports them or stops the pod
// through the runtime. pkg/decide/control decides which pod has to go, and when.
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
}

// Report evicts no pods: the decision itself already records in the log and the audit trail
// that the pod should be evicted.
type Report struct{}

// Evict does nothing.
func (Report) Evict(context.Context, Pod) error { return nil }
