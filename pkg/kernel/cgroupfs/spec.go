package cgroupfs

import (
	"fmt"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ReadBack is how what a knob shows relates to what was written.
type ReadBack string

// The ways of reading back; Driver.Same knows them.
const (
	Exact     ReadBack = "exact"     // what was written
	Rounded   ReadBack = "rounded"   // to the kernel's unit, or clamped to its range
	Effective ReadBack = "effective" // what comes out together with the cgroups above
)

// Spec is what a knob is in the kernel. No knob exists on the root cgroup, except
// where a controller happens to have it there too; all exist on every other level.
type Spec struct {
	Controller string   // cpuset, cpu, memory, io (v1: blkio) or net_cls
	V1, V2     []string // its files, the first that is there counts; none: not on that version
	Min, Max   int64    // of numbers, shares and bytes; both 0: bounded by the machine
	Default    knobs.Value
	ReadBack   ReadBack
	Gate       string // switch below the host's root that must be 1 where it exists

	busy, invalid string // what EBUSY and EINVAL of a write are likely due to; "" for nothing in particular

	test  knobs.Value // other than the default
	read  func(*cgroup, *Spec) (knobs.Value, error)
	write func(*cgroup, *Spec, knobs.Change) error
	same  func(want, have knobs.Value, v2 bool) bool // nil is ==
}

// Describe returns what a knob is in the kernel.
func Describe(knob knobs.Knob) Spec { return *specs[knob] }

// Files are a knob's possible files on a version; none where it doesn't have it.
func (s *Spec) Files(v2 bool) []string {
	if v2 {
		return s.V2
	}
	return s.V1
}

// specs is the one table of what each knob is; each is in its controller's file.
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
	knobs.WmarkRatio:   memoryNumber("memory.wmark_ratio", 0, 100, 0, 95),
	knobs.WmarkScale:   memoryNumber("memory.wmark_scale_factor", 1, 1000, 50, 20),
	knobs.WmarkMinAdj:  &wmarkMinAdjSpec,
	knobs.MemPriority:  memoryNumber("memory.priority", 0, 12, 0, 5),
	knobs.PriorityOOM:  memoryNumber("memory.use_priority_oom", 0, 1, 0, 1),
	knobs.MemoryQoS:    &memoryQoSSpec,
	knobs.PageCache:    &pageCacheSpec,
	knobs.PageCacheMax: memoryNumber("memory.pagecache.max_ratio", 1, 100, 100, 50),

	knobs.IOWeight: &ioWeightSpec,
	knobs.IOMax:    &ioMaxSpec,

	knobs.NetClass: &netClassSpec,
}

// check refuses a value that isn't the knob's, before the kernel is asked.
func (s *Spec) check(knob knobs.Knob, v knobs.Value) error {
	if !knob.Takes(v) {
		return fmt.Errorf("a %T is no value of %s", v, knob)
	}
	if n, ok := v.(knobs.Number); ok && (int64(n) < s.Min || int64(n) > s.Max) {
		return fmt.Errorf("%w: %s is %d to %d", ErrConstraint, knob, s.Min, s.Max)
	}
	return nil
}

// Same reports whether a knob that is to be want is right where Read gives have:
// whether the kernel shows what it makes of want. That depends on its rounding:
// v2 weights are coarser than shares, bytes are whole pages. The empty CPUSet,
// "all that the parent has", is never the same as what is read.
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

// Plain numbers, one a file.

func readNumber(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.look(s.Files(c.in.v2)...)
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

// unreadable says that a file has a text that this package doesn't know.
func (c *cgroup) unreadable(s *Spec, text string) error {
	return fmt.Errorf("%s of %s shows %.60q, which this program can't read; the knob is left alone", s.Files(c.in.v2)[0], c.dir, text)
}
