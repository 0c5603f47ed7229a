package schemata

import "math/bits"

// Narrow returns a class whose shares are percentages of those of c: of the ways of a cache, the
// lowest and at least one, and of memory bandwidth.
func Narrow(c Class, cache, bandwidth int) Class {
	c.L2, c.L3 = narrowCaches(c.L2, cache), narrowCaches(c.L3, cache)
	c.MB, c.SMBA = narrowBandwidths(c.MB, bandwidth), narrowBandwidths(c.SMBA, bandwidth)
	return c
}

func narrowCaches(shares map[int]Cache, percent int) map[int]Cache {
	narrow := map[int]Cache{}
	for id, s := range shares {
		if (s.Code == Range{} && s.Data == Range{}) {
			s.Range = s.lowest(percent)
		} else {
			s.Code, s.Data = s.Code.lowest(percent), s.Data.lowest(percent)
		}
		narrow[id] = s
	}
	return narrow
}

// lowest returns a percentage of a range, from its lower end.
func (r Range) lowest(percent int) Range {
	if r.Mask == 0 {
		if r.To == 0 {
			r.To = 100
		}
		return Range{From: r.From, To: r.From + max(1, ((r.To-r.From)*percent+99)/100)}
	}
	keep := max(1, (bits.OnesCount64(r.Mask)*percent+99)/100)
	mask := r.Mask
	for range bits.OnesCount64(r.Mask) - keep {
		mask &^= 1 << (bits.Len64(mask) - 1)
	}
	return Range{Mask: mask}
}

func narrowBandwidths(shares map[int]Bandwidth, percent int) map[int]Bandwidth {
	narrow := map[int]Bandwidth{}
	for id, b := range shares {
		b.Percent, b.MBps = part(b.Percent, percent), part(b.MBps, percent)
		narrow[id] = b
	}
	return narrow
}

// part returns a percentage of an amount, at least 1 unless the amount is 0.
func part(n, percent int) int {
	if n == 0 {
		return 0
	}
	return max(1, n*percent/100)
}
