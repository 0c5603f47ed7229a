package cgroupfs

import (
	"math"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const maxWeight = 10000 // CGROUP_WEIGHT_MAX in include/linux/cgroup.h

var burstFiles1, burstFiles2 = []string{"cpu.cfs_burst_us"}, []string{"cpu.max.burst"}

// burstSpec is the CFS burst (Linux 5.14, and earlier in vendor kernels). Mainline kernels
// answer EINVAL to a burst above the quota. A later write of the quota can change the burst,
// see keepBurst.
var burstSpec = Spec{
	Controller: "cpu", V1: burstFiles1, V2: burstFiles2,
	Default: knobs.CPUBurst(0), ReadBack: Exact,
	invalid: "the burst may not exceed the quota on this kernel",
	test:    knobs.CPUBurst(20 * time.Millisecond), read: readBurst, write: writeBurst, same: sameBurst,
}

func readBurst(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.readCached(s.Files(c.in.v2)...)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(text, 10, 53) // nanoseconds fit below 2^63
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

// weightSpec is the CPU weight. The kernel refuses to change it while cpu.idle is 1 (EINVAL);
// v1 then shows 3 and v2 shows 0.
var weightSpec = Spec{
	Controller: "cpu", V1: []string{"cpu.shares"}, V2: []string{"cpu.weight"},
	Min: int64(knobs.MinShares), Max: int64(knobs.MaxShares), Default: knobs.DefaultShares, ReadBack: Rounded,
	invalid: "the weight can't be written while cpu.idle is 1",
	test:    knobs.Shares(512), read: readShares, write: writeShares, same: sameShares,
}

// idleSpec is cpu.idle (Linux 5.15). Setting it back to 0 resets the weight to its default,
// 1024 shares or weight 100, so the weight must be written after it.
var idleSpec = Spec{
	Controller: "cpu", V1: []string{"cpu.idle"}, V2: []string{"cpu.idle"},
	Max: 1, Default: knobs.Number(0), ReadBack: Exact,
	test: knobs.Number(1), read: readNumber, write: writeNumber,
}

func readShares(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.readCached(s.Files(c.in.v2)...)
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

// WeightOf converts v1's shares, 2..262144, to v2's cpu.weight, 1..10000, with the classic
// formula of KEP-2254, which the kubelet and runc before 1.3 use.
func WeightOf(shares knobs.Shares) int64 {
	return 1 + int64((clamp(shares)-knobs.MinShares)*(maxWeight-1)/(knobs.MaxShares-knobs.MinShares))
}

// RuncWeightOf converts v1's shares to v2's cpu.weight as runc 1.3 and later do
// (ConvertCPUSharesToCgroupV2Value of opencontainers/cgroups).
func RuncWeightOf(shares knobs.Shares) int64 {
	l := math.Log2(float64(clamp(shares)))
	return min(int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34))), maxWeight)
}

// SharesOf returns the smallest number of shares that converts to this cpu.weight. The weight
// 0, which a cgroup with cpu.idle shows, converts to 0.
func SharesOf(weight int64) knobs.Shares {
	if weight <= 0 {
		return 0
	}
	return knobs.MinShares + (knobs.Shares(weight-1)*(knobs.MaxShares-knobs.MinShares)+maxWeight-2)/(maxWeight-1)
}

// Scale returns the given percentage of a weight. It multiplies the numbers that the kernel
// compares: on v2 those are weights, which are not proportional to v1's shares.
func Scale(shares knobs.Shares, percent int, v2 bool) knobs.Shares {
	scaled := func(n int64) int64 { return (n*int64(percent) + 50) / 100 }
	if !v2 {
		return clamp(knobs.Shares(scaled(int64(clamp(shares)))))
	}
	return SharesOf(min(max(scaled(WeightOf(shares)), 1), maxWeight))
}

// Room returns the percentage up to which a weight can be scaled before the kernel clamps it.
func Room(shares knobs.Shares, v2 bool) int {
	if v2 {
		return int(maxWeight * 100 / WeightOf(shares))
	}
	return int(knobs.MaxShares * 100 / clamp(shares))
}
