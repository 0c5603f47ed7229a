package workload

// The bounds of Egress.Bits.
const (
	LeastEgress int64 = 64_000             // a slower pod could hardly end its connections
	MostEgress  int64 = 10_000_000_000_000 // above any link
)

// Egress is the most that a BE pod may send. The zero value is no ceiling. If both fields are set, the
// smaller ceiling counts, and which one that is depends on the link.
type Egress struct {
	Bits    int64 // per second, LeastEgress to MostEgress; 0 for none
	Percent int   // of the node's link, 1 to 100; 0 for none
}

// Tighten lowers each ceiling to that of another container of the pod, or of the configuration.
func (e *Egress) Tighten(o Egress) {
	if o.Bits > 0 && (e.Bits == 0 || o.Bits < e.Bits) {
		e.Bits = o.Bits
	}
	if o.Percent > 0 && (e.Percent == 0 || o.Percent < e.Percent) {
		e.Percent = o.Percent
	}
}

// Of returns the ceiling in bits per second on a link of that many bits per second, at least LeastEgress;
// 0 for none. A percentage of an unknown link, 0, is none.
func (e Egress) Of(link int64) int64 {
	if e.Percent == 0 || link <= 0 {
		return e.Bits
	}
	percent := int64(e.Percent)
	share := max(LeastEgress, link/100*percent+link%100*percent/100)
	if e.Bits == 0 {
		return share
	}
	return min(e.Bits, share)
}
