package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/topology"
)

const (
	historyDays = 14
	lookPerDay  = 24 * 60 * 4 // of the load, in a history
)

// history returns what an agent would have learned of the pools' load in the days before the
// scenario, if these had had the same load by time of day and of the week, and less of it by the
// drift. What the scenario defines by the time since its start nobody could know: steps and traces
// were at their first value all the time, and steps that multiply another curve are left out.
func history(s *Scenario, m *topology.Machine, pools []string, all []*instance) *predict.Set {
	set := predict.NewSet(s.Config.Control.Prediction.Methods())
	sources := make([]*source, len(all))
	for i, in := range all {
		quiet := in.Load
		quiet.Noise = 0
		sources[i] = newSource(quiet, s.Seed+1, in.name)
	}
	rng := rand.New(rand.NewPCG(uint64(s.Seed), 1))
	speed := 1.0
	if m.ThreadsPerCore() > 1 { // as in pools that are as full as fixed ones
		speed -= (1 - float64(s.Hardware.SMT)) * max(0, 2*filled-1) / filled
	}
	step := day / lookPerDay
	used := make([]float64, len(pools))
	for before := historyDays * day; before > 0; before -= step {
		now := time.Time(s.Start).Add(-before)
		clock := s.clock(0) - before
		clear(used)
		for i, in := range all {
			if at := slices.Index(pools, in.pool); at >= 0 && !in.class.Pinned() {
				used[at] += in.scale * meanLoad(sources[i], before, clock-in.late) / speed * (1 + meanNoise(float64(in.Load.Noise))*rng.NormFloat64())
			}
		}
		for i, name := range pools[:len(pools)-1] {
			set.Add(now, predict.Key{Kind: predict.Pool, Name: name, Resource: predict.CPU}, max(0, used[i]))
		}
		if before%day == 0 {
			for range set.Len() {
				set.Search(now)
			}
		}
	}
	return set
}

// meanLoad returns the load of an instance so long before the scenario.
func meanLoad(s *source, before, clock time.Duration) float64 {
	since := time.Duration(0)
	if s.Curve == Bursts {
		since = historyDays*day - before
	}
	return s.known(since, clock) * s.growth(-before)
}

// meanNoise returns the standard deviation that noise still has in the mean of a minute: that of
// the half which fades in ten seconds, see source.at.
func meanNoise(noise float64) float64 { return noise * math.Sqrt(0.5*2*10/60) }
