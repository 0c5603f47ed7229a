package reconcile

import (
	"slices"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Status appends the settings of a cgroup at that level to all.
func (r *Reconciler) Status(all []status.Setting, level status.Level, path string) []status.Setting {
	c := r.cgroups[path]
	if c == nil {
		return all
	}
	now := r.Now()
	for _, s := range c.settings {
		value := s.Value
		if e, kept := r.Journal.Entry(path, s.Knob); kept && e.Wrote != nil {
			value = e.Wrote
		}
		if s.shown != value {
			s.shown, s.text = value, ""
			if value != nil {
				s.text = value.String()
			}
		}
		all = append(all, status.Setting{
			Level: level, Knob: s.Knob.String(), File: r.Features.Knobs[s.Knob].File, Value: s.text, Why: s.Why, Problem: s.problem,
			Drift: s.drift, Suspect: s.suspect, Contested: s.contest.Contested(now),
		})
	}
	return all
}

// Version changes whenever the result of Status for a pod or a container may have changed.
// contested is whether any knob is contested now, which ends by the passage of time alone.
func (r *Reconciler) Version(contested bool) uint64 {
	if contested || r.contested {
		r.version++
	}
	r.contested = contested
	return r.version + r.Journal.Version(knobs.PodLevel) + r.Journal.Version(knobs.ContainerLevel)
}

// Drift counts the repairs of knobs that other programs have changed.
func (r *Reconciler) Drift() int { return r.drift }

// Quiet reports whether no knob can be contested now.
func (r *Reconciler) Quiet() bool { return !r.Now().Before(r.contestsEndAt) }

// Contested lists the contested knobs in alphabetical order.
func (r *Reconciler) Contested() []string {
	if r.Quiet() {
		return nil
	}
	now := r.Now()
	var all []string
	for _, c := range r.cgroups {
		for _, s := range c.settings {
			if s.contest.Contested(now) {
				all = append(all, s.Knob.String()+" of "+c.Name)
			}
		}
	}
	slices.Sort(all)
	return all
}
