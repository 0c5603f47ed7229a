package qos

import "time"

// Favour is by how much the cgroups beside batch work are raised above it: one percentage
// for all that have the same parent, so that each keeps its proportion to every other. The
// zero value raises nothing. It changes seldom, since each change rewrites all of them.
type Favour struct {
	percent int       // 0 not raised
	since   time.Time // another percentage has been due since then; zero: none is
}

// favourPause is how long a higher percentage, or none, must have been due before it is in
// force: pods that are replaced change nothing. A lower one is in force at once, because the
// kernel would cut the largest weight and so change the proportions.
const favourPause = time.Minute

// Step returns the percentage in force, 100 or less to raise nothing. Most is the
// percentage that is wanted, fits what the largest of the cgroups has room for, and batch
// reports whether batch work is beside them.
func (f *Favour) Step(now time.Time, most, fits int, batch bool) int {
	due := favourWithin(most, fits)
	switch {
	case f.percent == 0 && batch, due < f.percent:
		f.percent, f.since = due, time.Time{}
		return f.percent
	case !batch:
		due = 0
	}
	switch {
	case due == f.percent:
		f.since = time.Time{}
	case f.since.IsZero() || now.Before(f.since):
		f.since = now
	case now.Sub(f.since) >= favourPause:
		f.percent, f.since = due, time.Time{}
	}
	return f.percent
}

// favourWithin is a percentage, or a half, a quarter and so on of it, that fits; at least
// 100. By halves a cgroup that grows or goes seldom changes it.
func favourWithin(most, fits int) int {
	for most > max(fits, 100) {
		most /= 2
	}
	return max(most, 100)
}
