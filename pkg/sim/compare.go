package sim

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Compare runs a scenario under policies, all with the load of the scenario.
func Compare(ctx context.Context, s *Scenario, policies []Policy) ([]*Result, error) {
	return each(policies, func(p Policy) (*Result, error) { return Run(ctx, s, p, 1) })
}

// CompareEqual runs a scenario under policies, each with the node as full as possible while
// services are late for no more than the scenario's budget. So it compares utilization at an equal
// rate of violations. If batch work varies, CompareEqual first tries other values of the policy's
// setting for how full the node may be: the sizes of fixed pools, the batch budget's threshold,
// the online pools' bands. If that is not enough, and for all other policies, it scales the load
// of the pods that s.Vary names: batch work up to the scenario's load, online work up to maxOnline
// times that. It finds the values by bisection, since more load or a fuller node means more
// violations. The result of a policy that violates the budget even without that load has none of
// it.
func CompareEqual(ctx context.Context, s *Scenario, policies []Policy) ([]*Result, error) {
	return each(policies, func(p Policy) (*Result, error) { return fullest(ctx, s, p) })
}

// Comparison has the results of policies on one scenario.
type Comparison struct {
	Scenario string    `json:"scenario"`       // its name
	Budget   float64   `json:"budgetFraction"` // of the services' time in which they may be late
	Results  []*Result `json:"results"`        // by policy
}

// Of returns the result of a policy, or nil without one.
func (c *Comparison) Of(p Policy) *Result {
	for _, r := range c.Results {
		if r.Policy == p {
			return r
		}
	}
	return nil
}

const (
	maxOnline = 4
	least     = 0.4 // lowest value of tight
	most      = 1.5
	halvings  = 5
)

func fullest(ctx context.Context, s *Scenario, p Policy) (*Result, error) {
	done := map[trial]*Result{} // nil if services were late
	try := func(load, tight float64) (*Result, error) {
		t := trial{policy: p, vary: load, tight: tight, budget: float64(s.Budget)}
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
		// Pools that are kept far emptier than the node leave those below them too few CPUs, so
		// the emptiest pools can cause as many violations as the fullest. The search therefore
		// goes down from the usual setting in steps of a tenth.
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

// bisect returns the result of the highest value that has one, or nil if even the lowest has none.
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

// each calls run for the policies, as many at a time as there are CPUs. Runs share nothing, so
// their order has no effect.
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
