package cgroupfs

import (
	"math"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// netClassSpec is net_cls.classid, 0xAAAABBBB for tc's AAAA:BBBB. The kernel silently truncates
// the number to 32 bits (write_classid in net/core/netclassid_cgroup.c).
var netClassSpec = Spec{
	Controller: "net_cls", V1: []string{"net_cls.classid"},
	Max: math.MaxUint32, Default: knobs.Number(0), ReadBack: Exact,
	test: knobs.Number(0x10001), read: readNumber, write: writeNumber,
}
