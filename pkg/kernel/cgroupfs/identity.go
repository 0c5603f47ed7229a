package cgroupfs

import "github.com/sluice-dev/sluice/pkg/knobs"

// These files, below the host's root, switch the vendors' CPU priorities on.
const (
	// Anolis has this switch from 4.19.91-26.4 and 5.10.134-13 on; older kernels have none.
	identityGate = "proc/sys/kernel/sched_group_identity_enabled"
	tencentGate  = "proc/sys/kernel/cpu_qos"
)

// identity describes a vendor's CPU priority: a number, the same on v1 and v2, 0 by default.
// The kernel answers EINVAL to values that break its constraints: on 5.10, cpu.qos_level can't
// change from -1 to 0, nor below an offline parent; cgroup.priority is never lower than the
// parent's.
func identity(low, high, test knobs.Number, gate, file string) *Spec {
	return &Spec{
		Controller: "cpu", V1: []string{file}, V2: []string{file},
		Min: int64(low), Max: int64(high), Default: knobs.Number(0), ReadBack: Exact, Gate: gate,
		test: test, read: readNumber, write: writeNumber,
	}
}

// belowParent is the likely reason for which the kernel refuses a priority.
const belowParent = "the cgroup above has a lower priority, or this kernel has no way back from it"

func (s *Spec) withHint(invalid string) *Spec {
	s.invalid = invalid
	return s
}

// btSharesSpec is cpu.bt_shares, which ranks offline groups among each other.
var btSharesSpec = Spec{
	Controller: "cpu", V1: []string{"cpu.bt_shares"},
	Min: int64(knobs.MinShares), Max: int64(knobs.MaxShares), Default: knobs.DefaultShares, ReadBack: Rounded, Gate: tencentGate,
	test: knobs.Shares(512), read: readShares, write: writeShares, same: sameShares,
}
