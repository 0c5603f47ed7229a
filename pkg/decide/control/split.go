package control

// Share is one claim on a budget in units of T, for example thousandths of a CPU.
type Share[T ~int64] struct {
	Weight int64 // at least 1 and at most 2^20; larger values count as that
	Demand T     // the most that the claim can use, at most 2^24
	Floor  T     // the least that the claim gets, whatever the budget is
}

const (
	splitScale = 1 << 16 // parts of a unit by which the level of Split rises
	mostWeight = 1 << 20 // an int64 holds this times the highest level
)

// at returns what the claim gets if each unit of weight is worth level / splitScale.
func (s *Share[T]) at(level int64) T {
	given := T(min(max(s.Weight, 1), mostWeight) * level / splitScale)
	return max(min(given, s.Demand), s.Floor)
}

// Split divides a budget by weight. What one claim can't use goes to the others, so that
// everything is given away while any claim can use it. Together the claims get the budget or
// all that they demand, and more only if the floors alone are more. A larger budget never gives
// a claim less. The result is written to into, which must have a place for each claim.
func Split[T ~int64](into []T, budget T, claims []Share[T]) []T {
	into = into[:0]
	sum := func(level int64) (total T) {
		for i := range claims {
			total += claims[i].at(level)
		}
		return total
	}
	var low, high int64 = 0, 1 << 42 // at the upper level every claim has its whole demand
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
