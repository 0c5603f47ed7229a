package cgroupfs

import "github.com/sluice-dev/sluice/pkg/knobs"

// The switches of the vendors' CPU priorities, below the host's root.
const (
	// Anolis, from 4.19.91-26.4 and 5.10.134-13 on; older kernels have none.
	identityGate = "proc/sys/kernel/sched_group_identity_enabled"
	tencentGate  = "proc/sys/kernel/cpu_qos"
)

// identity is a vendor's CPU priority: a number, the same on v1 and v2, 0 by
// default. Constraints that the kernel answers with EINVAL: cpu.qos_level goes
// from -1 to 0 on no 5.10, and stays as it is below an offline parent;
// cgroup.priority is never lower than the parent's.
func identity(low, high, test knobs.Number, gate, file string) *Spec {
	return &Spec{
		Controller: "cpu", V1: []string{file}, V2: []string{file},
		Min: int64(low), Max: int64(high), Default: knobs.Number(0), ReadBack: Exact, Gate: gate,
		test: test, read: readNumber, write: writeNumber,
	}
}

// belowParent is what a refused priority is likely due to.
const belowParent = "the cgroup above has a lower priority, or this kernel has no way back from it"

func (s *Spec) withHint(invalid string) *Spec {
	s.invalid = invalid
	return s
}

// cpu.bt_shares are the shares among offline groups alone.
var btSharesSpec = Spec{
	Controller: "cpu", V1: []string{"cpu.bt_shares"},
	Min: int64(knobs.MinShares), Max: int64(knobs.MaxShares), Default: knobs.DefaultShares, ReadBack: Rounded, Gate: tencentGate,
	test: knobs.Shares(512), read: readShares, write: writeShares, same: sameShares,
}
