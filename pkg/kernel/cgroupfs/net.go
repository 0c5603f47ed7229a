package cgroupfs

import (
	"math"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// net_cls.classid is 0xAAAABBBB for tc's AAAA:BBBB; the kernel cuts it to 32 bits
// without a word (write_classid in net/core/netclassid_cgroup.c).
var netClassSpec = Spec{
	Controller: "net_cls", V1: []string{"net_cls.classid"},
	Max: math.MaxUint32, Default: knobs.Number(0), ReadBack: Exact,
	test: knobs.Number(0x10001), read: readNumber, write: writeNumber,
}
