package control

import "github.com/sluice-dev/sluice/pkg/workload"

// Share is one claim on a budget.
type Share struct {
	Weight int64             // at least 1; above 2^20 it counts as that
	Demand workload.MilliCPU // the most it can use, at most 2^24
	Floor  workload.MilliCPU // the least it gets, whatever the budget
}

const (
	splitScale = 1 << 16 // parts of a milli-CPU by which Split's level rises
	mostWeight = 1 << 20 // times the highest level is what an int64 holds
)

// at is what the claim gets where each unit of weight is worth level / splitScale.
func (s *Share) at(level int64) workload.MilliCPU {
	given := workload.MilliCPU(min(max(s.Weight, 1), mostWeight) * level / splitScale)
	return max(min(given, s.Demand), s.Floor)
}

// Split divides a budget by weight: what one claim can't use the others get, so that
// all is given away while anybody can use it. Together the claims have the budget, or
// all that they ask for; more only where the floors alone are more. A claim never
// gets less of a larger budget. The answer is into, with a place for each claim.
func Split(into []workload.MilliCPU, budget workload.MilliCPU, claims []Share) []workload.MilliCPU {
	into = into[:0]
	sum := func(level int64) (total workload.MilliCPU) {
		for i := range claims {
			total += claims[i].at(level)
		}
		return total
	}
	var low, high int64 = 0, 1 << 42 // at which everybody has all that they ask for
	for low < high {
		if middle := (low + high + 1) / 2; sum(middle) <= budget {
			low = middle
		} else {
			high = middle - 1
		}
	}
	left := max(budget-sum(low), 0)
	for i := range claims {
		given := claims[i].at(low)
		more := min(claims[i].at(low+1)-given, left) // less than one step of the level
		left -= more
		into = append(into, given+more)
	}
	return into
}
