package kube

import (
	"context"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	cluster "github.com/sluice-dev/sluice/pkg/cluster/slices"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
)

// These are the times of looks at claims that no container uses.
const (
	lookInterval = 2 * time.Minute
	// forgottenAfter is for how long the API server has to say that a claim is not this node's. The kubelet ends the claims
	// of pods that are gone a minute after its start, and each minute again (reconcilePeriod in pkg/kubelet/cm/dra).
	forgottenAfter = 10 * time.Minute
)

// unusedClaims are the claims whose CPUs no container has. The kubelet ends them, unless it has lost its record of
// the claims that it has prepared.
type unusedClaims struct {
	mu  sync.Mutex
	now []cluster.Reserved // by the plugin's latest status; nil while it is away

	// since is when the API server was first found to say that a claim is not this node's, by UID, and has not said
	// otherwise since. The goroutine of the looks alone uses it.
	since map[string]time.Time
}

func (u *unusedClaims) set(now []cluster.Reserved) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.now = now
}

func (u *unusedClaims) get() []cluster.Reserved {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.now
}

// endForgotten ends claims that the kubelet has forgotten, until the context ends.
func (d *Driver) endForgotten(ctx context.Context) {
	for pause(ctx, lookInterval); ctx.Err() == nil; pause(ctx, lookInterval) {
		d.look(ctx, time.Now())
	}
}

// look ends the claims that no container has used, and that were not this node's, at each look for forgottenAfter. A look
// to which the API server gives no answer does not count.
func (d *Driver) look(ctx context.Context, now time.Time) {
	since := map[string]time.Time{}
	for _, c := range d.unused.get() {
		before, known := d.unused.since[c.UID]
		why, err := d.notHere(ctx, c)
		switch {
		case err != nil && known, why != "" && known:
			since[c.UID] = before
		case why != "":
			since[c.UID] = now
		}
		if why != "" && known && now.Sub(before) >= forgottenAfter {
			d.endUnused(ctx, c)
		}
	}
	d.unused.since = since
}

// endUnused ends a claim as the kubelet does, unless it has been prepared anew since the look. A container that is created
// later does not start, because the runtime finds no CDI spec of the claim.
func (d *Driver) endUnused(ctx context.Context, c cluster.Reserved) {
	d.one.Lock()
	defer d.one.Unlock()
	why, err := d.notHere(ctx, c)
	if err != nil || why == "" || !slices.Contains(d.unused.get(), c) {
		return
	}
	log := d.log.WithField("claim", c.Namespace+"/"+c.Name).WithField("uid", c.UID)
	if err := d.end(ctx, c.UID); err != nil {
		log.WithError(err).Warn("The CPUs of a claim that nobody uses are not freed; sluice-kube tries again")
		return
	}
	log.WithField("reason", why).Warn("The CPUs of a claim are freed, which no container has used for " + forgottenAfter.String() + ": the kubelet has not ended the claim")
}

// notHere returns why no pod of this node can use a claim, by what the API server has; "" if one can.
func (d *Driver) notHere(ctx context.Context, c cluster.Reserved) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	var object resourceapi.ResourceClaim
	err = d.rest.Get().Resource("resourceclaims").Namespace(c.Namespace).Name(c.Name).Do(ctx).Into(&object)
	switch {
	case apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err): // the latter is of a server that has no claims at all
		return "the API server has no such claim", nil
	case err != nil:
		return "", err
	case string(object.UID) != c.UID:
		return "the claim was made anew, with UID " + string(object.UID), nil
	case !d.isHere(object.Status.Allocation):
		return "the claim is not allocated on this node", nil
	}
	return "", nil
}

// isHere reports whether an allocation has CPUs of this node.
func (d *Driver) isHere(a *resourceapi.AllocationResult) bool {
	return a != nil && slices.ContainsFunc(a.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool {
		return r.Driver == claim.Driver && r.Pool == d.client.node
	})
}
