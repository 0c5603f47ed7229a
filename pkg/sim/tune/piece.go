package tune

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// Load is what a configuration is tuned on: a recording, or a scenario.
type Load struct {
	Name      string
	Recording *recording.Recording // nil for a scenario
	Scenario  *sim.Scenario
}

const (
	day        = 24 * time.Hour
	windowTime = 20 * time.Minute
	warmup     = 5 * time.Minute // before each window: longer than the pools remember
)

// piece is a part of a load that is simulated by itself.
type piece struct {
	scenario *sim.Scenario
	rules    bool // the scenario's own rules for pods count, in place of those of the configuration
}

// pieces are the parts of the loads: those on which all candidates are compared, those on which the
// best are checked, and those on which the chosen one is tested.
type pieces struct{ train, check, test []piece }

// split divides the loads. Of a recording, the first two thirds of its days are for training.
func split(loads []Load, present *config.Config, o Options) (pieces, error) {
	var all pieces
	for _, l := range loads {
		if l.Recording == nil {
			// A scenario has no days, so that it is tested with other random numbers.
			for i, part := range []*[]piece{&all.train, &all.train, &all.check, &all.check, &all.test, &all.test, &all.test} {
				s := *l.Scenario
				s.Seed += i
				*part = append(*part, piece{&s, true})
			}
			continue
		}
		days := int(l.Recording.End.Sub(l.Recording.Start) / day)
		if days < 2 {
			return pieces{}, fmt.Errorf("%s has %s: tuning takes two days at least, one to tune on and one to test the result on; record more with sluice record --days", l.Name, l.Recording.End.Sub(l.Recording.Start).Round(time.Minute))
		}
		train := time.Duration(min((2*days+2)/3, days-1)) * day
		first := windows(l.Recording, sim.Span{From: 0, To: train}, 3*o.Windows, present, o.Service)
		last := windows(l.Recording, sim.Span{From: train, To: time.Duration(days) * day}, 2*o.Windows, present, o.Service)
		if len(first) < 2 || len(last) == 0 {
			return pieces{}, fmt.Errorf("%s has services in %d windows of its first days and %d of its last, which is too little to tune on; record more, or raise --windows", l.Name, len(first), len(last))
		}
		compared := min(o.Windows, len(first)/2)
		all.train, all.check, all.test = append(all.train, first[:compared]...), append(all.check, first[compared:]...), append(all.test, last...)
	}
	if len(all.train) == 0 {
		return pieces{}, errors.New("there is nothing to tune on: name recordings of days, or scenarios")
	}
	return all, nil
}

// windows returns windows of a recording, spread over a span by the golden ratio, so that they are
// at different times of day. A window in which nothing was recorded is left out.
func windows(r *recording.Recording, in sim.Span, count int, present *config.Config, service sim.Service) []piece {
	interval := max(r.Interval, time.Second)
	room := in.To - in.From - warmup - windowTime
	var all []piece
	for i := range count {
		_, part := math.Modf(0.5 + float64(i)*(math.Phi-1))
		from := (in.From + time.Duration(part*float64(room))).Truncate(interval)
		s, err := sim.ReplaySpan(r, sim.Span{From: from, To: from + warmup + windowTime}, present, service)
		if err != nil || !greedy(s, r) {
			continue
		}
		s.Warmup, s.Seed = warmup, i+1
		all = append(all, piece{scenario: s})
	}
	return all
}

// greedy replaces recorded batch work, which wants no more than it got, by some that takes all CPUs
// that it can get. It reports whether there are services beside it.
func greedy(s *sim.Scenario, r *recording.Recording) bool {
	services := s.Pods[:0]
	for _, p := range s.Pods {
		if p.Service.Time > 0 {
			services = append(services, p)
		}
	}
	cpus := r.Machine.Online.Size()
	s.Pods = append(services, sim.Pod{
		Name: "batch", Annotations: map[string]string{"class.sluice.dev": workload.BE.String()},
		Load:   sim.Load{Curve: sim.Constant, CPU: sim.Cores(cpus), Threads: cpus},
		Memory: sim.Memory{Low: 1, Speed: 1 << 30},
	})
	return len(services) > 0
}

// configured returns the configuration for a piece: the rules for pods of a scenario belong to its
// pods.
func (p *piece) configured(c *config.Config) *config.Config {
	if !p.rules {
		return c
	}
	out, own := *c, p.scenario.Config
	out.Rules, out.RDT = own.Rules, own.RDT
	out.Rules.Pools, out.DefaultPool, out.PoolSets, out.NeverEvict, out.LeastSLOPercent = c.Rules.Pools, c.DefaultPool, c.PoolSets, c.NeverEvict, c.LeastSLOPercent
	return &out
}
