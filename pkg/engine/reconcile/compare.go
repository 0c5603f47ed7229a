package reconcile

import (
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// compare reads a cgroup's knobs from the kernel and returns the changes that it needs. Before
// it returns, the journal has the original of each. A value that the kernel refused recently is
// left out unless atOnce is set.
func (r *Reconciler) compare(c *Cgroup, atOnce bool) []knobs.Change {
	if !r.MayWrite() {
		return nil
	}
	var changes []knobs.Change
	now := r.Now()
	_, suspended := r.suspended[c.pod]
	for _, s := range c.settings {
		if s.expected && suspended {
			continue // it could make the kernel refuse the resize again
		}
		have, err := r.Kernel.Read(c.Path, s.Knob)
		if errors.Is(err, cgroupfs.ErrGone) {
			return nil
		}
		if err != nil {
			r.setProblem(s, err.Error())
			continue
		}
		f := r.facts(c, s, have, now)
		if atOnce {
			f.refused = nil
		}
		d := diff(&f)
		if change, ok := r.perform(c, s, have, &d); ok {
			changes = append(changes, change)
		}
	}
	return changes
}

// facts gathers what the decision about a setting depends on.
func (r *Reconciler) facts(c *Cgroup, s *Setting, have knobs.Value, now time.Time) facts {
	at := Key{c.Path, s.Knob}
	f := facts{
		level: c.Level, setting: s.Setting, have: have, without: r.without(at, have), underWay: r.slow.underWay(at),
		expected: s.expected, failed: s.problem != "", updating: r.Updating(c.Path) || r.Starting(c.Path), contested: s.contest.Waits(now),
		v2:      r.Features.Knobs[knobs.Weight].V2,
		refused: r.refusals.waiting(at, now), same: r.same,
	}
	f.entry, f.journaled = r.Journal.Entry(c.Path, s.Knob)
	if c.Level == knobs.ContainerLevel {
		if value, ok := r.Carried(at); ok {
			f.carried = value
		}
	}
	return f
}

// without is the value that a cgroup would have without Sluice: the value found, unless the
// kernel copied Sluice's setting of the pod into the cgroup when it was made.
func (r *Reconciler) without(at Key, found knobs.Value) knobs.Value {
	if at.Knob.Inherited() {
		pod, kept := r.Journal.Entry(path.Dir(at.Path), at.Knob)
		if kept && pod.Wrote != nil && r.Kernel.Same(at.Knob, pod.Wrote, found) {
			return pod.Value
		}
	}
	return found
}

// perform carries out a decision except for the write, which it returns.
func (r *Reconciler) perform(c *Cgroup, s *Setting, have knobs.Value, d *decision) (change knobs.Change, ok bool) {
	if d.journalWeight {
		if err := r.journalWeight(c.Object); err != nil {
			r.setProblem(s, err.Error())
			return knobs.Change{}, false
		}
	}
	if d.original != nil {
		r.Journal.Record(c.Object, s.Knob, d.original)
	}
	switch d.action {
	case foreign:
		r.setProblem(s, d.reason)
	case matching:
		s.expected = false
		r.setProblem(s, "")
		r.Accepted(Key{c.Path, s.Knob})
		r.Journal.RecordWrite(c.Path, s.Knob, d.want) // an earlier run may have written it, or the runtime for Sluice
	case write:
		if d.drift {
			r.noteDrift(c, s, have, d.want)
		}
		s.expected = false
		e, _ := r.Journal.Entry(c.Path, s.Knob)
		s.before = e.Wrote
		r.Journal.RecordWrite(c.Path, s.Knob, d.want)
		return knobs.Change{Object: c.Object, Knob: s.Knob, From: d.from, To: d.want, Why: s.Why}, true
	case wait:
	}
	return knobs.Change{}, false
}

// journalWeight records the weight of a cgroup that becomes idle. If Sluice had changed the
// weight before, the journal keeps the original, and no longer records that Sluice wrote it. After an
// error the weight is not known, and the cgroup must not become idle.
func (r *Reconciler) journalWeight(o knobs.Object) error {
	if e, kept := r.Journal.Entry(o.Path, knobs.Weight); kept && e.Wrote != nil {
		r.Journal.Drop(o.Path, knobs.Weight)
		r.Journal.Record(o, knobs.Weight, e.Value)
		return nil
	}
	weight, err := r.Kernel.Read(o.Path, knobs.Weight)
	if err != nil {
		return fmt.Errorf("its weight, which the kernel changes when idle ends, can't be read: %w", err)
	}
	r.Journal.Record(o, knobs.Weight, weight)
	return nil
}

// noteDrift counts and logs the repair of a knob that another program changed.
func (r *Reconciler) noteDrift(c *Cgroup, s *Setting, have, want knobs.Value) {
	r.version++
	s.drift++
	r.drift++
	r.CountRepair(&s.contest)
	s.suspect = r.Suspect(c.Object, s.Knob, have)
	r.Log.WithFields(logrus.Fields{
		"cgroup": c.Name, "setting": s.Knob.String(), "found": have.String(), "want": want.String(), "suspect": s.suspect,
	}).Warn("A knob was changed by somebody else, repaired" + s.contest.Notice(r.Now()))
}

// CountRepair counts a repair of a value that another program may keep changing. The value need
// not be one of the Reconciler's.
func (r *Reconciler) CountRepair(b *Backoff) {
	b.add(r.Now(), repairs())
	if end := b.resetAt(); end.After(r.contestsEndAt) {
		r.contestsEndAt = end
	}
}
