package agent

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Affinities reads and writes where IRQs and unbound work may run; see pkg/kernel/irq.
type Affinities interface {
	Read() (map[irq.File]cpuset.Set, error)
	Write(irq.Write) (cpuset.Set, error)
	Balancer() string
}

// steering keeps IRQs and unbound workqueues off the CPUs of LSE containers.
type steering struct {
	busy     bool       // a change is under way, outside the loop
	kept     irq.Kept   // originals; replaced, never changed
	done     irq.Desire // what the kernel was last brought to
	skipped  int        // by the kernel's refusal, then
	told     bool       // that the kernel refuses some
	balanced bool       // told that irqbalance runs
}

func (s *steering) status() status.Steering {
	return status.Steering{CPUs: cpuset.Union(s.done.IRQs, s.done.Workqueues), Skipped: s.skipped}
}

// steer begins a change if another set of CPUs is to be left alone. There can be
// thousands of files, so the loop does not wait for them.
func (a *Agent) steer() {
	may := a.authority()
	s := &a.steering
	if a.Affinities == nil || !a.synced || s.busy || !may.Writes {
		return
	}
	want := a.desire()
	if want == s.done {
		return
	}
	if want.IsEmpty() && len(s.kept) == 0 {
		s.done = want
		return
	}
	s.busy = true
	kept := s.kept
	a.spawn(func() {
		found, err := a.Affinities.Read()
		next, writes := irq.Plan(found, err == nil, kept, want)
		balancer := a.Affinities.Balancer()
		a.post("steer", func() {
			s.busy = false
			if err != nil {
				a.Log.WithError(err).Warn("Some IRQs or workqueues can't be read: they stay where they are")
			}
			if balancer != "" && !s.balanced && !want.IRQs.IsEmpty() {
				s.balanced = true
				a.Log.WithField("process", balancer).Warn("irqbalance runs and will move IRQs back to LSE containers' CPUs: stop it, or name these CPUs in its IRQBALANCE_BANNED_CPULIST")
			}
			if may.Writes {
				a.steerTo(want, next, writes)
			}
		})
	})
}

func (a *Agent) desire() irq.Desire {
	want := irq.Desire{Online: a.ledger.Machine().Online}
	if !a.Config.Steer.IRQs && !a.Config.Steer.Workqueues {
		return want
	}
	var lse cpuset.Set
	for _, c := range a.order {
		if h, ok := a.ledger.Holder(c.ID); ok && h.Request.Class == workload.LSE {
			lse = cpuset.Union(lse, h.CPUs)
		}
	}
	if a.Config.Steer.IRQs {
		want.IRQs = lse
	}
	if a.Config.Steer.Workqueues {
		want.Workqueues = lse
	}
	return want
}

// steerTo carries out a plan, once the originals are on disk.
func (a *Agent) steerTo(want irq.Desire, kept irq.Kept, writes []irq.Write) {
	s := &a.steering
	s.kept = kept
	if err := keepAffinities(a.book, kept); err != nil {
		a.Log.WithError(err).Error("The original CPUs of IRQs can't be noted: they stay where they are")
		return
	}
	if a.savable(nil); a.unsaved {
		return
	}
	s.busy = true
	a.spawn(func() {
		var results []irq.Result
		for _, w := range writes {
			cpus, err := a.Affinities.Write(w)
			results = append(results, irq.Result{File: w.File, CPUs: cpus, Err: err})
		}
		kept := irq.Settle(kept, results, want)
		a.post("steer", func() {
			s.busy = false
			a.steered(want, kept, results)
		})
	})
}

// steered takes note of what was written.
func (a *Agent) steered(want irq.Desire, kept irq.Kept, results []irq.Result) {
	s := &a.steering
	s.kept, s.done, s.skipped = kept, want, 0
	if err := keepAffinities(a.book, kept); err != nil {
		a.Log.WithError(err).Error("The original CPUs of IRQs can't be noted")
	}
	moved := 0
	var first error
	for _, r := range results {
		switch {
		case r.Err == nil:
			moved++
		case !errors.Is(r.Err, irq.ErrGone):
			s.skipped++
			if first == nil {
				first = fmt.Errorf("%s: %w", r.File, r.Err)
			}
		}
	}
	if first != nil && !s.told {
		s.told = true
		a.Log.WithError(first).WithField("count", s.skipped).Warn("Some IRQs or workqueues stay where they are: the kernel binds them itself, or refuses for the reason given")
	}
	if len(results) == 0 {
		return
	}
	log := a.Log.WithFields(logrus.Fields{"moved": moved, "skipped": s.skipped})
	if want.IsEmpty() {
		log.Info("IRQs and workqueues have their original CPUs again")
		return
	}
	log.WithFields(logrus.Fields{"irqs": want.IRQs.String(), "workqueues": want.Workqueues.String()}).Info("IRQs and workqueues steered off LSE containers' CPUs")
}
