package cgroupfs

import (
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const maxWeight = 10000 // CGROUP_WEIGHT_MAX in include/linux/cgroup.h

var burstFiles1, burstFiles2 = []string{"cpu.cfs_burst_us"}, []string{"cpu.max.burst"}

// The burst (5.14, and in vendor kernels before) is at most the quota in mainline
// kernels: EINVAL. A quota written later can undo it, see keepBurst.
var burstSpec = Spec{
	Controller: "cpu", V1: burstFiles1, V2: burstFiles2,
	Default: knobs.CPUBurst(0), ReadBack: Exact,
	invalid: "the burst may not exceed the quota on this kernel",
	test:    knobs.CPUBurst(20 * time.Millisecond), read: readBurst, write: writeBurst, same: sameBurst,
}

func readBurst(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.look(s.Files(c.in.v2)...)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(text, 10, 53) // in ns below 2^63
	if err != nil {
		return nil, c.unreadable(s, text)
	}
	return knobs.CPUBurst(time.Duration(n) * time.Microsecond), nil
}

func writeBurst(c *cgroup, s *Spec, to knobs.Change) error {
	b, _ := to.To.(knobs.CPUBurst)
	return c.writeFirst(s.Files(c.in.v2), micros(time.Duration(b)))
}

func sameBurst(want, have knobs.Value, _ bool) bool {
	a, _ := want.(knobs.CPUBurst)
	b, _ := have.(knobs.CPUBurst)
	return time.Duration(a).Microseconds() == time.Duration(b).Microseconds()
}

// The weight can't be written while cpu.idle is 1 (EINVAL); meanwhile v1 shows 3
// and v2 0.
var weightSpec = Spec{
	Controller: "cpu", V1: []string{"cpu.shares"}, V2: []string{"cpu.weight"},
	Min: int64(knobs.MinShares), Max: int64(knobs.MaxShares), Default: knobs.DefaultShares, ReadBack: Rounded,
	invalid: "the weight can't be written while cpu.idle is 1",
	test:    knobs.Shares(512), read: readShares, write: writeShares, same: sameShares,
}

// cpu.idle (5.15) going back to 0 puts the weight to its default, 1024 shares or
// weight 100: the weight is to be written after it.
var idleSpec = Spec{
	Controller: "cpu", V1: []string{"cpu.idle"}, V2: []string{"cpu.idle"},
	Max: 1, Default: knobs.Number(0), ReadBack: Exact,
	test: knobs.Number(1), read: readNumber, write: writeNumber,
}

func readShares(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.look(s.Files(c.in.v2)...)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, c.unreadable(s, text)
	}
	if c.in.v2 {
		return SharesOf(n), nil
	}
	return knobs.Shares(n), nil
}

func writeShares(c *cgroup, s *Spec, to knobs.Change) error {
	shares, _ := to.To.(knobs.Shares)
	n := int64(clamp(shares))
	if c.in.v2 {
		n = WeightOf(shares)
	}
	return c.writeFirst(s.Files(c.in.v2), strconv.FormatInt(n, 10))
}

func sameShares(want, have knobs.Value, v2 bool) bool {
	a, _ := want.(knobs.Shares)
	b, _ := have.(knobs.Shares)
	if v2 {
		return b != 0 && WeightOf(a) == WeightOf(b)
	}
	return clamp(a) == b
}

func clamp(shares knobs.Shares) knobs.Shares {
	return min(max(shares, knobs.MinShares), knobs.MaxShares)
}

// WeightOf is v2's cpu.weight, 1..10000, for v1's shares, 2..262144: the classic
// formula of KEP-2254, which the kubelet and runc before 1.3 use.
func WeightOf(shares knobs.Shares) int64 {
	return 1 + int64((clamp(shares)-knobs.MinShares)*(maxWeight-1)/(knobs.MaxShares-knobs.MinShares))
}

// SharesOf is the least number of shares with that cpu.weight. The weight 0, which
// a cgroup with cpu.idle shows, is 0.
func SharesOf(weight int64) knobs.Shares {
	if weight <= 0 {
		return 0
	}
	return knobs.MinShares + (knobs.Shares(weight-1)*(knobs.MaxShares-knobs.MinShares)+maxWeight-2)/(maxWeight-1)
}

// Scale is a weight in percent of another, by the numbers that the kernel compares: v2's
// weights are no multiples of v1's shares, so that these can't be multiplied in their place.
func Scale(shares knobs.Shares, percent int, v2 bool) knobs.Shares {
	scaled := func(n int64) int64 { return (n*int64(percent) + 50) / 100 }
	if !v2 {
		return clamp(knobs.Shares(scaled(int64(clamp(shares)))))
	}
	return SharesOf(min(max(scaled(WeightOf(shares)), 1), maxWeight))
}

// Room is the percentage by which a weight can be multiplied before the kernel cuts it.
func Room(shares knobs.Shares, v2 bool) int {
	if v2 {
		return int(maxWeight * 100 / WeightOf(shares))
	}
	return int(knobs.MaxShares * 100 / clamp(shares))
}
