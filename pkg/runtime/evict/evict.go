// Package evict ends pods for the control loop: it only tells, or stops the pod
// through the runtime. Who has to go, and when, is decided in pkg/decide/control.
package evict

import (
	"context"
	"time"
)

// Pod is a pod to end.
type Pod struct {
	UID   string
	Ref   string        // "namespace/name"
	Grace time.Duration // for its containers to end by themselves
}

// Report ends nobody: that the pod would have to go is in the log and the audit trail
// by the decision itself.
type Report struct{}

// Evict does nothing.
func (Report) Evict(context.Context, Pod) error { return nil }
