package cgroupfs

import (
	"fmt"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ReadBack says how the value read from a knob relates to the value written.
type ReadBack string

// These are the ways of reading back; Driver.Same handles each.
const (
	Exact     ReadBack = "exact"     // the value written
	Rounded   ReadBack = "rounded"   // the value written, rounded to the kernel's unit or clamped to its range
	Effective ReadBack = "effective" // the value in combination with those of the ancestors
)

// Spec describes a knob in the kernel. Knobs exist on every level except the root cgroup, where
// only some controllers have them.
type Spec struct {
	Controller string   // cpuset, cpu, memory, io (v1: blkio) or net_cls
	V1, V2     []string // file names, of which the first that exists is used; empty if that version lacks the knob
	Min, Max   int64    // range of numbers, shares and bytes; both 0: the machine sets the bounds
	Default    knobs.Value
	ReadBack   ReadBack
	Gate       string // switch below the host's root that must be 1 if it exists

	busy, invalid string // the likely reasons for EBUSY and EINVAL of a write; "" if there is no typical one

	test  knobs.Value // a value for Probe other than the default
	read  func(*cgroup, *Spec) (knobs.Value, error)
	write func(*cgroup, *Spec, knobs.Change) error
	same  func(want, have knobs.Value, v2 bool) bool // nil means ==
}

// Describe returns the description of a knob.
func Describe(knob knobs.Knob) Spec { return *specs[knob] }

// Files returns a knob's possible files on a version; it returns none if that version lacks the
// knob.
func (s *Spec) Files(v2 bool) []string {
	if v2 {
		return s.V2
	}
	return s.V1
}

// specs is the table of all knobs; each is defined in its controller's file.
var specs = [knobs.Knobs]*Spec{
	knobs.CPUs: setSpec(cpusFile),
	knobs.Mems: setSpec("cpuset.mems"),

	knobs.Quota:  &quotaSpec,
	knobs.Burst:  &burstSpec,
	knobs.Weight: &weightSpec,
	knobs.Idle:   &idleSpec,

	knobs.BVT:            identity(-1, 2, -1, identityGate, "cpu.bvt_warp_ns"),
	knobs.CPUIdentity:    identity(-1, 1, -1, identityGate, "cpu.identity"),
	knobs.CPUPriority:    identity(-1, 1, -1, identityGate, "cpu.priority"),
	knobs.CPUQoS:         identity(-1, 2, -1, "", "cpu.qos_level").withHint(belowParent),
	knobs.CgroupPriority: identity(0, 7, 7, tencentGate, "cgroup.priority").withHint(belowParent),
	knobs.CPUOffline:     identity(0, 1, 1, "", "cpu.offline"),
	knobs.BTShares:       &btSharesSpec,

	knobs.MemoryMax:    &memoryMaxSpec,
	knobs.MemoryMin:    memoryBytes("memory.min", knobs.Bytes(0)),
	knobs.MemoryLow:    memoryBytes("memory.low", knobs.Bytes(0)),
	knobs.MemoryHigh:   memoryBytes("memory.high", knobs.Max),
	knobs.SoftLimit:    &softLimitSpec,
	knobs.OOMGroup:     memoryNumber("memory.oom.group", 0, 1, 0, 1),
	knobs.SwapMax:      &swapMaxSpec,
	knobs.Swappiness:   &swappinessSpec,
	knobs.WmarkRatio:   memoryNumber("memory.wmark_ratio", 0, 100, 0, 95),
	knobs.WmarkScale:   memoryNumber("memory.wmark_scale_factor", 1, 1000, 50, 20),
	knobs.WmarkMinAdj:  &wmarkMinAdjSpec,
	knobs.MemPriority:  memoryNumber("memory.priority", 0, 12, 0, 5),
	knobs.PriorityOOM:  memoryNumber("memory.use_priority_oom", 0, 1, 0, 1),
	knobs.MemoryQoS:    &memoryQoSSpec,
	knobs.PageCache:    &pageCacheSpec,
	knobs.PageCacheMax: memoryNumber("memory.pagecache.max_ratio", 1, 100, 100, 50),

	knobs.IOWeight:  &ioWeightSpec,
	knobs.BFQWeight: &bfqWeightSpec,
	knobs.IOMax:     &ioMaxSpec,
	knobs.IOClass:   &ioClassSpec,

	knobs.NetClass: &netClassSpec,
}

// check refuses a value of the wrong type or range before it reaches the kernel.
func (s *Spec) check(knob knobs.Knob, v knobs.Value) error {
	if !knob.Takes(v) {
		return fmt.Errorf("a %T is no value of %s", v, knob)
	}
	if n, ok := v.(knobs.Number); ok && (int64(n) < s.Min || int64(n) > s.Max) {
		return fmt.Errorf("%w: %s is %d to %d", ErrConstraint, knob, s.Min, s.Max)
	}
	return nil
}

// Same reports whether have, as returned by Read, is what the kernel shows for a knob set to
// want. The kernel rounds: v2 weights are coarser than shares, and bytes are whole pages. The
// empty CPUSet, which stands for all that the parent has, never equals a set that was read.
func (d *Driver) Same(knob knobs.Knob, want, have knobs.Value) bool {
	if want == have {
		return true
	}
	s := specs[knob]
	if s.same == nil || !knob.Takes(want) || !knob.Takes(have) {
		return false
	}
	h := d.hierarchyOf(s.Controller)
	return s.same(want, have, h != nil && h.v2)
}

// The following knobs are plain numbers, one per file.

func readNumber(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.readCached(s.Files(c.in.v2)...)
	if err != nil {
		return nil, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, c.unreadable(s, text)
	}
	return knobs.Number(n), nil
}

func writeNumber(c *cgroup, s *Spec, to knobs.Change) error {
	n, _ := to.To.(knobs.Number)
	return c.writeFirst(s.Files(c.in.v2), strconv.FormatInt(int64(n), 10))
}

// unreadable returns an error for a file whose text this package can't parse.
func (c *cgroup) unreadable(s *Spec, text string) error {
	return fmt.Errorf("%s of %s shows %.60q, which this program can't read; the knob is left alone", s.Files(c.in.v2)[0], c.dir, text)
}
