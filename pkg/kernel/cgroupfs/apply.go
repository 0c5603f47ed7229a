package cgroupfs

import (
	"errors"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Apply makes the changes in the given order (see knobs.Order). A failed change doesn't stop
// the others: the returned error joins a *ChangeError for each failure. A change that failed
// because a parent or child cgroup was in the way is tried once more after the others, which
// may have removed the obstacle.
func (d *Driver) Apply(changes []knobs.Change) error {
	var errs []error
	var again []knobs.Change
	for _, c := range changes {
		switch err := d.apply(c); {
		case errors.Is(kind(err), ErrConstraint), errors.Is(kind(err), ErrOrder), errors.Is(kind(err), ErrNotEffective):
			again = append(again, c)
		default:
			errs = appendFailure(errs, c, err)
		}
	}
	for _, c := range again {
		errs = appendFailure(errs, c, d.apply(c))
	}
	return errors.Join(errs...)
}

func appendFailure(errs []error, c knobs.Change, err error) []error {
	if err == nil {
		return errs
	}
	return append(errs, &ChangeError{Change: c, Kind: kind(err), Err: err})
}

func (d *Driver) apply(c knobs.Change) error {
	s, h, err := d.at(c.Knob)
	if err != nil {
		return err
	}
	if err := s.check(c.Knob, c.To); err != nil {
		return err
	}
	if c.Knob.Local() {
		if inner := d.innerOf(c.Object); inner != "" {
			return d.applyNested(h, s, c, inner)
		}
	}
	return h.with(c.Object.Path, func(in *cgroup) error { return s.write(in, s, c) })
}
