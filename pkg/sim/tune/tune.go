// Package tune searches the configuration that gives batch work the most CPU while services are
// late no more than before, by simulating candidates on recorded days or scenarios.
package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/sim"
)

// Options say what to tune.
type Options struct {
	Config  *config.Config // the present configuration
	Service sim.Service    // what recorded online containers answer
	Late    float64        // fraction of the services' time that may be late; negative: as much as with the present configuration
	Windows int            // of each recording, to compare candidates on; the best are checked, and the chosen one is tested, on twice as many
}

// Outcome is what a configuration achieved on some pieces of the loads, as means over their time.
type Outcome struct {
	Pieces              int     `json:"pieces"`
	BatchCPUs           float64 `json:"batchCPUs"` // batch work done, in CPUs at full speed
	UtilizationFraction float64 `json:"utilizationFraction"`
	LateFraction        float64 `json:"lateFraction"` // of the services' time
	CPUMovesPerHour     float64 `json:"cpuMovesPerHour"`
	MovesPerHour        float64 `json:"movesPerHour"`
}

// Candidate is a configuration that was tried.
type Candidate struct {
	Settings []Setting `json:"settings"` // what differs from the present configuration
	Verdict  Verdict   `json:"verdict"`
	Outcome
}

// Verdict is what became of a candidate.
type Verdict string

// These are the verdicts.
const (
	Best    Verdict = "best"    // the one that was tested, on what it was compared and checked on
	Better  Verdict = "better"  // than all before it
	Behind  Verdict = "behind"  // another one does as much batch work or more
	TooLate Verdict = "late"    // services are late more than they may be
	Present Verdict = "present" // the present configuration
)

// Tuning is the result of a search.
type Tuning struct {
	Mode       config.PoolMode `json:"mode"` // of the pools
	Settings   []Setting       `json:"settings"`
	Accepted   bool            `json:"accepted"` // the tests confirm that the settings are better
	Why        string          `json:"why"`
	Config     string          `json:"config"`     // the settings as a part of sluice.yaml; "" unless they are accepted
	Candidates []Candidate     `json:"candidates"` // in the order of the search; those with the most pieces were checked
	Before     *Outcome        `json:"before,omitempty"`
	After      *Outcome        `json:"after,omitempty"`   // Before and After are on the test pieces; absent if nothing was found to test
	LateLimit  float64         `json:"lateLimitFraction"` // of the services' time, on the test pieces if there was something to test
}

// tuner is a search.
type tuner struct {
	options    Options
	present    *config.Config
	knobs      []knob
	pieces     []piece // those to compare on, to check on and to test on, in the order in which they are used
	train      int     // number of pieces to compare on
	checked    int     // number of those and of the pieces to check on
	results    map[string][]*sim.Result
	candidates []Candidate
	finalists  []choice // that are in time on all pieces to compare on
}

// rounds is how often each key is tried again with the values found for the others.
const rounds = 2

// Run searches by coordinate descent: it tries all values of one key after the other, keeps the
// best, and goes through the keys again. Of the values of a key, only the best third on a quarter
// of the training pieces is tried on all of them (successive halving). A value is better if the
// mean gain of batch work over the pieces is more than twice its standard error, and more than one
// percent. The best candidates are checked on more pieces of the training days, until one is not
// late there either: of many candidates, the best one is likely to be at the limit by luck. That one
// is tested against the present configuration on days, or random numbers, that the search has not
// seen. The same loads and options give the same result.
//
// The control loop is on in all candidates, whatever the configuration says, without forecasts.
func Run(ctx context.Context, loads []Load, o Options) (*Tuning, error) {
	present := *o.Config
	present.Mode, present.RecordUpdates.Enabled = config.On, false
	present.Control.Mode, present.Control.Prediction.Mode = control.On, control.Off
	split, err := split(loads, &present, o)
	if err != nil {
		return nil, err
	}
	t := &tuner{options: o, present: &present, knobs: knobs(&present), train: len(split.train), checked: len(split.train) + len(split.check), results: map[string][]*sim.Result{}}
	shuffle := rand.New(rand.NewPCG(1, uint64(t.train)))
	shuffle.Shuffle(t.train, func(i, j int) { split.train[i], split.train[j] = split.train[j], split.train[i] })
	t.pieces = slices.Concat(split.train, split.check, split.test)
	if err = t.search(ctx); err != nil {
		return nil, err
	}
	best, err := t.check(ctx)
	if err != nil {
		return nil, err
	}
	return t.test(ctx, best)
}

func (t *tuner) search(ctx context.Context) error {
	best := make(choice, len(t.knobs))
	if err := t.run(ctx, []choice{best}, t.train); err != nil {
		return err
	}
	t.note(best, t.train, Present)
	for range rounds {
		before := best
		for k := range t.knobs {
			next, err := t.descend(ctx, best, k)
			if err != nil {
				return err
			}
			best = next
		}
		if slices.Equal(best, before) {
			break
		}
	}
	return nil
}

// mostChecked bounds how many candidates are checked.
const mostChecked = 8

// check returns the candidate with the most batch work that keeps the limit, and gains, on the
// pieces to check on, too; or the present configuration.
func (t *tuner) check(ctx context.Context) (choice, error) {
	present := make(choice, len(t.knobs))
	best := slices.Clone(t.finalists)
	slices.SortStableFunc(best, func(a, b choice) int { return t.compare(a, b, t.train) })
	for _, c := range best[:min(len(best), mostChecked)] {
		if !t.gains(present, c, 0, t.train) {
			break
		}
		if err := t.run(ctx, []choice{present, c}, t.checked); err != nil {
			return nil, err
		}
		switch kept := t.inTime([]choice{c}, t.checked); {
		case len(kept) == 0:
		case t.gains(present, c, 0, t.checked):
			t.note(c, t.checked, Best)
			return c, nil
		default:
			t.note(c, t.checked, Behind)
		}
	}
	return present, nil
}

// descend returns the best choice with another value of one key, or the choice itself.
func (t *tuner) descend(ctx context.Context, best choice, k int) (choice, error) {
	var all []choice
	for v := range len(t.knobs[k].values) + 1 {
		if c := best.with(k, v); v != best[k] && t.results[c.key()] == nil {
			all = append(all, c)
		}
	}
	few := max(2, t.train/4)
	if few < t.train {
		if err := t.run(ctx, all, few); err != nil {
			return nil, err
		}
		kept := t.inTime(all, few)
		for _, c := range kept[min(len(kept), (len(all)+2)/3):] {
			t.note(c, few, Behind)
		}
		all = kept[:min(len(kept), (len(all)+2)/3)]
	}
	if err := t.run(ctx, all, t.train); err != nil {
		return nil, err
	}
	for _, c := range t.inTime(all, t.train) {
		t.finalists = append(t.finalists, c)
		if t.gains(best, c, 0, t.train) {
			t.note(c, t.train, Better)
			best = c
		} else {
			t.note(c, t.train, Behind)
		}
	}
	return best, nil
}

// inTime returns the candidates that keep the limit of lateness on the first pieces, those with the
// most batch work first. It notes the others.
func (t *tuner) inTime(all []choice, pieces int) []choice {
	var kept []choice
	for _, c := range all {
		if t.outcome(c, 0, pieces).LateFraction <= t.limit(0, pieces) {
			kept = append(kept, c)
		} else {
			t.note(c, pieces, TooLate)
		}
	}
	slices.SortStableFunc(kept, func(a, b choice) int { return t.compare(a, b, pieces) })
	return kept
}

// compare orders candidates by batch work on the first pieces, the most first.
func (t *tuner) compare(a, b choice, pieces int) int {
	return cmp.Compare(t.outcome(b, 0, pieces).BatchCPUs, t.outcome(a, 0, pieces).BatchCPUs)
}

func (t *tuner) note(c choice, pieces int, v Verdict) {
	t.candidates = append(t.candidates, Candidate{t.settings(c), v, t.outcome(c, 0, pieces)})
}

// test compares the best candidate with the present configuration on the test pieces.
func (t *tuner) test(ctx context.Context, best choice) (*Tuning, error) {
	present := make(choice, len(t.knobs))
	out := &Tuning{Mode: t.present.Pools.Mode, Settings: t.settings(best), Candidates: t.candidates, LateLimit: t.limit(0, t.train)}
	if slices.Equal(best, present) {
		out.Why = "no candidate did more batch work than the present configuration, by more than noise, without more late services"
		return out, nil
	}
	if err := t.run(ctx, []choice{present, best}, len(t.pieces)); err != nil {
		return nil, err
	}
	before, after := t.outcome(present, t.checked, len(t.pieces)), t.outcome(best, t.checked, len(t.pieces))
	out.Before, out.After, out.LateLimit = &before, &after, t.limit(t.checked, len(t.pieces))
	switch {
	case after.LateFraction > out.LateLimit:
		out.Why = fmt.Sprintf("the best candidate is late %.3f %% of the services' time in the tests, and may be %.3f %%", 100*after.LateFraction, 100*out.LateLimit)
	case !t.gains(present, best, t.checked, len(t.pieces)):
		out.Why = "the best candidate does not do more batch work in the tests, by more than noise"
	default:
		out.Accepted = true
		out.Why = "the tests confirm that there is more batch work without more late services than allowed"
		keys := make([]string, len(out.Settings))
		for i, s := range out.Settings {
			keys[i] = s.Key
		}
		text, err := t.configure(best).Part(keys...)
		if err != nil {
			return nil, err
		}
		out.Config = string(text)
	}
	return out, nil
}

// limit is how much of the services' time may be late on pieces.
func (t *tuner) limit(from, to int) float64 {
	if t.options.Late >= 0 {
		return t.options.Late
	}
	return t.outcome(make(choice, len(t.knobs)), from, to).LateFraction
}

func (c choice) key() string { return fmt.Sprint([]int(c)) }

// run simulates candidates on the first pieces, as many runs at a time as there are CPUs.
func (t *tuner) run(ctx context.Context, all []choice, pieces int) error {
	type job struct {
		c  choice
		at int
	}
	var jobs []job
	for _, c := range all {
		done := t.results[c.key()]
		for i := len(done); i < pieces; i++ {
			jobs = append(jobs, job{c, i})
		}
		t.results[c.key()] = append(done, make([]*sim.Result, max(0, pieces-len(done)))...)
	}
	errs := make([]error, len(jobs))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i, j := range jobs {
		results := t.results[j.c.key()]
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			p := &t.pieces[j.at]
			results[j.at], errs[i] = sim.RunConfigured(ctx, p.scenario, p.configured(t.configure(j.c)))
			if r := results[j.at]; r != nil {
				r.Series, r.Services = sim.Series{}, nil // not needed, and large
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
