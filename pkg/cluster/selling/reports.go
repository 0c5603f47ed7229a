package selling

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/nodereport"
)

// ReportHold is the least time between two publications for the sake of the node's report alone,
// and up to a fifth longer. A report comes along with every other publication.
const ReportHold = 10 * time.Minute

// reports holds when the seller published reports, and the means that they contain.
type reports struct {
	reportTimes
	before reportTimes // those without the latest report, which may fail

	used, short, long mean
	room              lowest
}

// reportTimes are when reports were published.
type reportTimes struct {
	at       time.Duration // of the latest; 0 before the first
	complete time.Duration // of the latest that said what could be sold; 0 before the first
	hold     time.Duration
}

// due reports whether a report is to be published, even alone. The first one that says what could
// be sold does not wait for those that could not.
func (r *reports) due(in *Input, is *nodereport.Report) bool {
	if is == nil || !is.Moved(in.Object.Report) {
		return false
	}
	last := r.at
	if is.Sellable != nil {
		last = r.complete
	}
	return last == 0 || in.Now-last >= r.hold
}

// Failed says that the node object did not get the latest publication: its report is due as before.
func (s *Seller) Failed() { s.reports.reportTimes = s.reports.before }

// spend notes a publication.
func (r *reports) spend(in *Input, is *nodereport.Report) {
	if is == nil {
		r.before = r.reportTimes
		return
	}
	r.before = r.reportTimes
	r.at, r.hold = in.Now, ReportHold+time.Duration(in.Jitter*float64(ReportHold)/5)
	if is.Sellable != nil {
		r.complete = in.Now
	}
}

// report returns what the node is to say of itself; nil if its pods are not known.
func (s *Seller) report(in *Input) *nodereport.Report {
	if in.PodsBlind {
		return nil
	}
	bound, _ := sums(in.Pods, true)
	is := &nodereport.Report{Schema: nodereport.Schema, Requested: in.Requested, Bound: offersOf(bound)}
	r := in.Report
	if r == nil || in.silent() || in.Heard-s.moved >= r.Stall {
		return is
	}
	is.MeasuredAt = r.MeasuredAt.UTC().Truncate(time.Second)
	if r.Used != nil {
		used := s.reports.used.enter(in.Heard, *r.Used)
		is.Used = &used
	}
	if r.Known {
		o := r.Offer
		o[MidCPU], o[MidMemory] = min(o[MidCPU], o[BatchCPU]), min(o[MidMemory], o[BatchMemory])
		now := offersOf(o)
		is.Sellable = &nodereport.Offers{ShortTerm: s.reports.short.enter(in.Heard, now.ShortTerm), LongTerm: s.reports.long.enter(in.Heard, now.LongTerm)}
	}
	if r.Scheduling != nil {
		scheduling := *r.Scheduling
		scheduling.RoomMilliCPU = s.reports.room.enter(in.Heard, scheduling.RoomMilliCPU)
		is.Scheduling = &scheduling
	}
	return is
}

func offersOf(a Amounts) nodereport.Offers {
	return nodereport.Offers{
		ShortTerm: nodereport.Amount{MilliCPU: a[BatchCPU], MemoryBytes: a[BatchMemory]},
		LongTerm:  nodereport.Amount{MilliCPU: a[MidCPU], MemoryBytes: a[MidMemory]},
	}
}

// mean is the mean of an amount over about the last ReportHold, or since the first measurement. The
// momentary amounts of a calm node differ by more than a tenth, and would be written all the time.
type mean struct {
	began, at   time.Duration
	cpu, memory float64
}

// enter adds a measurement, and returns the mean.
func (m *mean) enter(at time.Duration, is nodereport.Amount) nodereport.Amount {
	switch {
	case m.at == 0:
		*m = mean{at, at, float64(is.MilliCPU), float64(is.MemoryBytes)}
	case at > m.at:
		share := min(1, float64(at-m.at)/float64(min(at-m.began, ReportHold)))
		m.at = at
		m.cpu += (float64(is.MilliCPU) - m.cpu) * share
		m.memory += (float64(is.MemoryBytes) - m.memory) * share
	}
	return nodereport.Amount{MilliCPU: int64(m.cpu), MemoryBytes: int64(m.memory)}
}

// lowest is the least of an amount over the last ReportHold, and up to as long before: what is
// promised to a scheduler for that long has to last.
type lowest struct {
	began, at   time.Duration // of now; of the latest amount
	now, before int64         // in the last ReportHold, and in the one before
}

// enter adds an amount, nil if it is not known, and returns the lowest. The amount is forgotten when it
// has been unknown for Silence: a reload makes it unknown for a moment.
func (l *lowest) enter(at time.Duration, amount *int64) *int64 {
	if l.at != 0 && at-l.at >= Silence {
		*l = lowest{}
	}
	if amount != nil {
		if l.at == 0 {
			l.began, l.now, l.before = at, *amount, *amount
		}
		if at-l.began >= ReportHold {
			l.began, l.now, l.before = at, *amount, l.now
		}
		l.at, l.now = at, min(l.now, *amount)
	}
	if l.at == 0 {
		return nil
	}
	return new(min(l.now, l.before))
}
