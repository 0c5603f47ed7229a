package qos

import "time"

// LSWeight is by how much the cgroups beside batch work are raised above it. All cgroups with the
// same parent have the same percentage, so that each keeps its proportion to the others. The
// zero value raises nothing. The percentage changes seldom, since each change rewrites all
// weights.
type LSWeight struct {
	percent int       // 0 if not raised
	since   time.Time // begin of the time in which another percentage has been due; zero if none is
}

// lsWeightPause is how long a higher percentage, or none, must have been due before it takes
// effect, so that the replacement of pods changes nothing. A lower percentage takes effect at
// once, because the kernel would clamp the largest weight and so change the proportions.
const lsWeightPause = time.Minute

// Step returns the percentage in force, or 100 or less to raise nothing. The wanted percentage
// is most, fits is the one for which the largest cgroup has room, and batch reports whether
// batch work is beside the cgroups.
func (f *LSWeight) Step(now time.Time, most, fits int, batch bool) int {
	due := lsWeightWithin(most, fits)
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
	case now.Sub(f.since) >= lsWeightPause:
		f.percent, f.since = due, time.Time{}
	}
	return f.percent
}

// lsWeightWithin returns the percentage or a half, a quarter and so on of it that fits, and at
// least 100. With halves, the arrival or end of a cgroup seldom changes the result.
func lsWeightWithin(most, fits int) int {
	for most > max(fits, 100) {
		most /= 2
	}
	return max(most, 100)
}
