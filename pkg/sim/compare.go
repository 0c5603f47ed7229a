package sim

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Compare runs a scenario under policies, all with the load that it tells.
func Compare(ctx context.Context, s *Scenario, policies []Policy) ([]*Result, error) {
	return each(policies, func(p Policy) (*Result, error) { return Run(ctx, s, p, 1) })
}

// CompareEqual runs a scenario under policies, each as full as it can be with services
// late no more than the scenario's budget: so utilization is compared at an equal
// violation rate. Where batch work is what varies, a policy that has a setting for how
// full the node may be is tried with other values of it (fixed pools, the batch
// budget's threshold, the online pools' bands); where that is not enough, and under
// all others, the load of the pods that s.Vary names is scaled, batch up to what the
// scenario tells, online work up to maxOnline times that. All is found by bisection,
// since more of either means more violations; a policy that violates the budget even
// without that load is told without it.
func CompareEqual(ctx context.Context, s *Scenario, policies []Policy) ([]*Result, error) {
	return each(policies, func(p Policy) (*Result, error) { return fullest(ctx, s, p) })
}

const (
	maxOnline = 4
	least     = 0.4 // tight
	most      = 1.5
	halvings  = 5
)

func fullest(ctx context.Context, s *Scenario, p Policy) (*Result, error) {
	tried := func(load, tight float64) (*Result, bool, error) {
		r, err := run(ctx, s, p, load, tight)
		return r, err == nil && r.Violations <= float64(s.Budget), err
	}
	load := func(tight, high float64) (*Result, error) {
		return bisect(0, high, func(at float64) (*Result, bool, error) { return tried(at, tight) })
	}
	switch {
	case s.Vary == VaryOnline:
		return load(1, maxOnline)
	case p == Unmanaged:
		return load(1, 1)
	}
	tight := func(low, high float64) (*Result, error) {
		return bisect(low, high, func(at float64) (*Result, bool, error) { return tried(1, at) })
	}
	// The usual setting first: pools that are to be far emptier than the node is starve
	// those below them, so that the emptiest may be as late as the fullest.
	for _, try := range []func() (*Result, error){
		func() (*Result, error) { return tight(1, most) },
		func() (*Result, error) { return tight(least, 1) },
		func() (*Result, error) { return load(1, 1) },
	} {
		if r, err := try(); err != nil || r.Violations <= float64(s.Budget) {
			return r, err
		}
	}
	return load(least, 1)
}

// bisect finds the highest value that is good; the result is that of low where none
// is.
func bisect(low, high float64, try func(float64) (*Result, bool, error)) (*Result, error) {
	best, good, err := try(high)
	if err != nil || good {
		return best, err
	}
	if best, good, err = try(low); err != nil || !good {
		return best, err
	}
	for range halvings {
		middle := (low + high) / 2
		r, good, err := try(middle)
		if err != nil {
			return nil, err
		}
		if good {
			best, low = r, middle
		} else {
			high = middle
		}
	}
	return best, nil
}

// each does something for policies, as many at a time as there are CPUs. Runs share
// nothing, so their order changes nothing.
func each(policies []Policy, run func(Policy) (*Result, error)) ([]*Result, error) {
	results, errs := make([]*Result, len(policies)), make([]error, len(policies))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i, p := range policies {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], errs[i] = run(p)
		})
	}
	wait.Wait()
	return results, errors.Join(errs...)
}
