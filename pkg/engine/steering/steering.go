// Package steering moves interrupts and unbound work queues off chosen CPUs, and restores the
// affinities that they had before.
package steering

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/irq"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// State is the name under which the journal keeps the original affinities.
const State = "affinities"

// Affinities reads and writes the CPUs on which interrupts and unbound work may run; see
// pkg/kernel/irq.
type Affinities interface {
	Read() (map[irq.File]cpuset.Set, error)
	Write(irq.Write) (cpuset.Set, error)
	Balancer() string
}

// Steerer sets the affinities to what is desired, one change at a time. The goroutine that owns
// the journal calls its methods. The kernel's files, of which there may be thousands, are read
// and written outside of that goroutine.
type Steerer struct {
	affinities Affinities
	journal    *journal.Journal
	aside      func(work, then func())
	log        logrus.FieldLogger

	busy      bool          // a change is under way
	originals irq.Originals // original affinities; replaced, never changed in place
	done      irq.Desire    // the affinities that were last written to the kernel
	skipped   int           // number of affinities that the kernel refused in that change
	unsaved   bool          // the log already says that the originals can't be written to disk
	refused   bool          // the log already says that the kernel refuses some
	balanced  bool          // the log already says that irqbalance runs
}

// New makes a Steerer, with the originals that an earlier run left in the journal. aside runs
// work outside of the goroutine that owns the journal, and then in it. Without affinities (nil)
// the Steerer does nothing.
func New(affinities Affinities, j *journal.Journal, aside func(work, then func()), log logrus.FieldLogger) *Steerer {
	s := &Steerer{affinities: affinities, journal: j, aside: aside, log: log}
	if _, err := j.State(State, &s.originals); err != nil {
		log.WithError(err).Warn("The original CPUs of IRQs are lost: they can't be given back")
	}
	return s
}

// Status reports which CPUs are free of interrupts, and how many affinities the kernel refused.
func (s *Steerer) Status() status.Steering {
	return status.Steering{CPUs: cpuset.Union(s.done.IRQs, s.done.Workqueues), Skipped: s.skipped}
}

// Steer starts a change if want differs from the last change and no change is under way. It
// returns at once. allowed is called right before the first write, since another program may
// have begun to set affinities in the meantime.
func (s *Steerer) Steer(want irq.Desire, allowed func() bool) {
	if s.affinities == nil || s.busy || want == s.done || !allowed() {
		return
	}
	if want.IsEmpty() && len(s.originals) == 0 {
		s.done = want
		return
	}
	var next irq.Originals
	var writes []irq.Write
	var err error
	var balancer string
	originals := s.originals
	s.begin(func() {
		var found map[irq.File]cpuset.Set
		found, err = s.affinities.Read()
		next, writes = irq.Plan(found, err == nil, originals, want)
		balancer = s.affinities.Balancer()
	}, func() {
		if err != nil {
			s.log.WithError(err).Warn("Some IRQs or workqueues can't be read: they stay where they are")
		}
		if balancer != "" && !s.balanced && !want.IRQs.IsEmpty() {
			s.balanced = true
			s.log.WithField("process", balancer).Warn("irqbalance runs and will move IRQs back to LSE containers' CPUs: stop it, or name these CPUs in its IRQBALANCE_BANNED_CPULIST")
		}
		if allowed() {
			s.write(want, next, writes)
		}
	})
}

// begin runs work outside of the goroutine; no other change begins before then has run.
func (s *Steerer) begin(work, then func()) {
	s.busy = true
	s.aside(work, func() {
		s.busy = false
		then()
	})
}

// write carries out a plan. It writes nothing unless the originals are on disk.
func (s *Steerer) write(want irq.Desire, originals irq.Originals, writes []irq.Write) {
	s.originals = originals
	err := SaveOriginals(s.journal, originals)
	if err == nil {
		err = s.journal.Flush()
	}
	if err != nil {
		if !s.unsaved {
			s.log.WithError(err).Error("The original CPUs of IRQs can't be written to disk: IRQs and workqueues stay where they are until they can be")
		}
		s.unsaved = true
		return
	}
	s.unsaved = false
	var results []irq.Result
	s.begin(func() {
		results, _ = write(s.affinities, writes)
	}, func() {
		s.originals, s.done = irq.AfterWrites(originals, results, want), want
		if err := SaveOriginals(s.journal, s.originals); err != nil {
			s.log.WithError(err).Error("The original CPUs of IRQs can't be noted")
		}
		s.report(results)
	})
}

// report logs the results of a change.
func (s *Steerer) report(results []irq.Result) {
	moved, refused := 0, error(nil)
	s.skipped = 0
	for _, r := range results {
		switch {
		case r.Err == nil:
			moved++
		case !errors.Is(r.Err, irq.ErrGone):
			s.skipped++
			if refused == nil {
				refused = fmt.Errorf("%s: %w", r.File, r.Err)
			}
		}
	}
	if refused != nil && !s.refused {
		s.refused = true
		s.log.WithError(refused).WithField("count", s.skipped).Warn("Some IRQs or workqueues stay where they are: the kernel binds them itself, or refuses for the reason given")
	}
	if len(results) == 0 {
		return
	}
	log := s.log.WithFields(logrus.Fields{"moved": moved, "skipped": s.skipped})
	if s.done.IsEmpty() {
		log.Info("IRQs and workqueues have their original CPUs again")
		return
	}
	log.WithFields(logrus.Fields{"irqs": s.done.IRQs.String(), "workqueues": s.done.Workqueues.String()}).Info("IRQs and workqueues steered off LSE containers' CPUs")
}

// Originals reads the original affinities from a journal.
func Originals(j *journal.Journal) (originals irq.Originals, err error) {
	_, err = j.State(State, &originals)
	return originals, err
}

// SaveOriginals records the original affinities in the journal; it removes the record if there are none.
func SaveOriginals(j *journal.Journal, originals irq.Originals) error {
	if len(originals) == 0 {
		return j.SaveState(State, nil)
	}
	return j.SaveState(State, originals)
}

// Restore restores all original affinities. No plugin may be running. Those that the kernel
// refuses stay in the journal, and the error names them.
func Restore(affinities Affinities, online cpuset.Set, j *journal.Journal) error {
	originals, err := Originals(j)
	if err != nil || len(originals) == 0 {
		return err
	}
	found, err := affinities.Read()
	want := irq.Desire{Online: online}
	originals, writes := irq.Plan(found, err == nil, originals, want)
	results, failed := write(affinities, writes)
	return errors.Join(err, failed, SaveOriginals(j, irq.AfterWrites(originals, results, want)))
}

func write(affinities Affinities, writes []irq.Write) (results []irq.Result, failed error) {
	for _, w := range writes {
		cpus, err := affinities.Write(w)
		results = append(results, irq.Result{File: w.File, CPUs: cpus, Err: err})
		failed = errors.Join(failed, err)
	}
	return results, failed
}
