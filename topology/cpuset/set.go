// Package cpuset is a set of CPU (or NUMA node) numbers as a plain value.
//
// A Set is a fixed bit array for the numbers 0 to 4095: it is comparable with
// ==, copied by assignment, its zero value is empty, and no operation
// allocates. The algebra is functions, not methods, so that a result that is
// computed and thrown away is caught by go vet (unusedresult, see Makefile).
package cpuset

import (
	"iter"
	"math/bits"
)

// Max is the number of CPUs that a Set can hold: Linux' NR_CPUS is at most
// 8,192, distributions build with up to 8,192 and machines have under 4,096.
const Max = 4096

const words = Max / 64

// Set is a set of numbers from 0 to Max-1.
type Set struct {
	w [words]uint64
}

// Of returns the set of the given numbers; a number outside 0 to Max-1 panics.
func Of(cpus ...int) Set {
	var s Set
	for _, cpu := range cpus {
		s.Add(cpu)
	}
	return s
}

// Range returns the set of all numbers from first to last, both included; a
// number outside 0 to Max-1 panics.
func Range(first, last int) Set {
	var s Set
	s.addSpan(first, last)
	return s
}

func (s *Set) addSpan(first, last int) {
	for first <= last {
		end := min(last, first|63)
		s.w[uint(first)/64] |= ^uint64(0) >> (63 - uint(end-first)) << (uint(first) % 64)
		first = end + 1
	}
}

// Union returns the numbers that are in a or in b.
func Union(a, b Set) Set {
	for i := range a.w {
		a.w[i] |= b.w[i]
	}
	return a
}

// Intersect returns the numbers that are in a and in b.
func Intersect(a, b Set) Set {
	for i := range a.w {
		a.w[i] &= b.w[i]
	}
	return a
}

// Difference returns the numbers that are in a but not in b.
func Difference(a, b Set) Set {
	for i := range a.w {
		a.w[i] &^= b.w[i]
	}
	return a
}

// Add adds cpu to the set; a number outside 0 to Max-1 panics.
func (s *Set) Add(cpu int) { s.w[uint(cpu)/64] |= 1 << (uint(cpu) % 64) }

// Remove removes cpu from the set; a number outside 0 to Max-1 panics.
func (s *Set) Remove(cpu int) { s.w[uint(cpu)/64] &^= 1 << (uint(cpu) % 64) }

// Contains reports whether cpu is in the set; it is false outside 0 to Max-1.
func (s Set) Contains(cpu int) bool {
	return uint(cpu) < Max && s.w[uint(cpu)/64]&(1<<(uint(cpu)%64)) != 0
}

// Size returns the number of members.
func (s Set) Size() int {
	n := 0
	for i := range s.w {
		n += bits.OnesCount64(s.w[i])
	}
	return n
}

// IsEmpty reports whether the set has no member.
func (s Set) IsEmpty() bool { return s == Set{} }

// First returns the lowest member, or -1 for the empty set.
func (s Set) First() int {
	for i, w := range s.w {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// Last returns the highest member, or -1 for the empty set.
func (s Set) Last() int {
	for i := words - 1; i >= 0; i-- {
		if w := s.w[i]; w != 0 {
			return i*64 + 63 - bits.LeadingZeros64(w)
		}
	}
	return -1
}

// SubsetOf reports whether every member of s is in t.
func (s Set) SubsetOf(t Set) bool {
	for i := range s.w {
		if s.w[i]&^t.w[i] != 0 {
			return false
		}
	}
	return true
}

// Overlaps reports whether s and t have a member in common.
func (s Set) Overlaps(t Set) bool {
	for i := range s.w {
		if s.w[i]&t.w[i] != 0 {
			return true
		}
	}
	return false
}

// IntersectSize returns the size of Intersect(a, b) without computing that set.
func IntersectSize(a, b Set) int {
	n := 0
	for i := range a.w {
		n += bits.OnesCount64(a.w[i] & b.w[i])
	}
	return n
}

// All yields the members in ascending order.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.w {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}
