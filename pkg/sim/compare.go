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
	done := map[trial]*Result{} // nil: late
	try := func(load, tight float64) (*Result, error) {
		t := trial{p, load, tight, float64(s.Budget)}
		r, known := done[t]
		if known {
			return r, nil
		}
		r, err := run(ctx, s, t)
		if errors.Is(err, errLate) || err == nil && r.LateFraction > t.budget {
			r, err = nil, nil
		}
		if err == nil {
			done[t] = r
		}
		return r, err
	}
	load := func(tight, high float64) (*Result, error) {
		return bisect(0, high, func(at float64) (*Result, error) { return try(at, tight) })
	}
	tight := func(low, high float64) (*Result, error) {
		return bisect(low, high, func(at float64) (*Result, error) { return try(1, at) })
	}
	var tries []func() (*Result, error)
	emptiest := trial{policy: p, tight: 1, budget: always}
	switch {
	case s.Vary == VaryOnline:
		tries = append(tries, func() (*Result, error) { return load(1, maxOnline) })
	case p == Unmanaged:
		tries = append(tries, func() (*Result, error) { return load(1, 1) })
	default:
		// Pools that are to be far emptier than the node is starve those below them: the
		// emptiest may be as late as the fullest. So down from the usual setting, by tenths.
		emptiest.tight = least
		tries = append(tries, func() (*Result, error) { return tight(1, most) })
		for at := 9; at >= 10*least; at-- {
			low, high := float64(at)/10, float64(at+1)/10
			tries = append(tries, func() (*Result, error) { return tight(low, high) })
		}
		tries = append(tries,
			func() (*Result, error) { return load(1, 1) },
			func() (*Result, error) { return load(least, 1) })
	}
	for _, next := range tries {
		if r, err := next(); r != nil || err != nil {
			return r, err
		}
	}
	return run(ctx, s, emptiest)
}

// bisect finds the highest value that has a result; nil where even the lowest has none.
func bisect(low, high float64, try func(float64) (*Result, error)) (*Result, error) {
	if best, err := try(high); best != nil || err != nil {
		return best, err
	}
	best, err := try(low)
	for i := 0; i < halvings && best != nil && err == nil; i++ {
		middle := (low + high) / 2
		var r *Result
		if r, err = try(middle); r != nil {
			best, low = r, middle
		} else {
			high = middle
		}
	}
	return best, err
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
