package cgroupfs

import (
	"errors"
	"os"
	"strconv"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const (
	limitFile1 = "memory.limit_in_bytes"
	swapFile1  = "memory.memsw.limit_in_bytes" // limits memory and swap together

	softLimitFile1 = "memory.soft_limit_in_bytes"

	// unlimited1 is the smallest value that v1 shows for "no limit": PAGE_COUNTER_MAX in pages
	// of 64 KiB (with pages of 4 KiB it shows 9223372036854771712).
	unlimited1 = 9223372036854710272
)

// memoryBytes describes an amount of memory that some vendors' kernels have on v1, too.
func memoryBytes(file string, usual knobs.Bytes) *Spec {
	return &Spec{
		Controller: "memory", V1: []string{file}, V2: []string{file}, Default: usual, ReadBack: Rounded,
		test: knobs.Bytes(64 << 20), read: readBytes, write: writeBytes, same: sameBytes,
	}
}

// memoryNumber describes a number that only vendors' kernels have, or have on v1.
func memoryNumber(file string, low, high, usual, test knobs.Number) *Spec {
	return &Spec{
		Controller: "memory", V1: []string{file}, V2: []string{file},
		Min: int64(low), Max: int64(high), Default: usual, ReadBack: Exact,
		test: test, read: readNumber, write: writeNumber,
	}
}

// memoryMaxSpec is the memory limit. v1 answers EBUSY to a limit below the memory that can't be
// reclaimed; v2 accepts any limit and kills. See writeLimit1 for swap.
var memoryMaxSpec = Spec{
	Controller: "memory", V1: []string{limitFile1}, V2: []string{"memory.max"}, Default: knobs.Max, ReadBack: Rounded,
	busy: "the cgroup uses more than that and the kernel could not reclaim it",
	test: knobs.Bytes(1 << 30), read: readBytes, write: writeLimit, same: sameBytes,
}

var softLimitSpec = Spec{
	Controller: "memory", V1: []string{softLimitFile1}, Default: knobs.Max, ReadBack: Rounded,
	test: knobs.Bytes(64 << 20), read: readBytes, write: writeBytes, same: sameBytes,
}

// swapMaxSpec is memory.swap.max. A limit of 0 keeps more memory from being swapped out, to zswap
// too, and leaves in swap what is there. Kernels without CONFIG_SWAP, or booted with swapaccount=0,
// lack the file.
var swapMaxSpec = Spec{
	Controller: "memory", V2: []string{"memory.swap.max"}, Default: knobs.Max, ReadBack: Rounded,
	test: knobs.Bytes(64 << 20), read: readBytes, write: writeBytes, same: sameBytes,
}

// swappinessSpec is v1's memory.swappiness, which a new cgroup copies from its parent. With 0, a
// limit reclaims page cache alone; the whole node swaps the cgroup's memory only when hardly any
// page cache is left (get_scan_count in mm/vmscan.c). Values above 100 need Linux 5.8.
var swappinessSpec = Spec{
	Controller: "memory", V1: []string{"memory.swappiness"},
	Max: 200, Default: knobs.Number(60), ReadBack: Exact,
	test: knobs.Number(10), read: readNumber, write: writeNumber,
}

// memoryQoSSpec is openEuler's memory.qos_level: EACCES while its switch is off.
var memoryQoSSpec = Spec{
	Controller: "memory", V1: []string{"memory.qos_level"}, V2: []string{"memory.qos_level"},
	Min: -1, Default: knobs.Number(0), ReadBack: Exact, Gate: "proc/sys/vm/memcg_qos_enable",
	test: knobs.Number(-1), read: readNumber, write: writeNumber,
}

// wmarkMinAdjSpec is memory.wmark_min_adj, which shows the strictest value other than 0 of the
// cgroup and its ancestors (Anolis' Documentation, Cloud Kernel interfaces).
var wmarkMinAdjSpec = Spec{
	Controller: "memory", V1: []string{"memory.wmark_min_adj"}, V2: []string{"memory.wmark_min_adj"},
	Min: -25, Max: 50, Default: knobs.Number(0), ReadBack: Effective,
	test: knobs.Number(-25), read: readNumber, write: writeNumber,
	same: func(want, have knobs.Value, _ bool) bool {
		a, _ := want.(knobs.Number)
		b, _ := have.(knobs.Number)
		return a < 0 && a <= b && b < 0 || a > 0 && a <= b
	},
}

func readBytes(c *cgroup, s *Spec) (knobs.Value, error) {
	text, err := c.readCached(s.Files(c.in.v2)...)
	if err != nil {
		return nil, err
	}
	b, ok := parseBytes(text)
	if !ok {
		return nil, c.unreadable(s, text)
	}
	return b, nil
}

func parseBytes(text string) (knobs.Bytes, bool) {
	if text == "max" {
		return knobs.Max, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	if n >= unlimited1 {
		return knobs.Max, true
	}
	return knobs.Bytes(n), true
}

func writeBytes(c *cgroup, s *Spec, to knobs.Change) error {
	b, _ := to.To.(knobs.Bytes)
	file := s.Files(c.in.v2)[0]
	none := "max"
	if file == limitFile1 || file == swapFile1 || file == softLimitFile1 {
		none = "-1"
	}
	return c.write(file, bytesText(b, none))
}

func bytesText(b knobs.Bytes, none string) string {
	if b < 0 {
		return none
	}
	return strconv.FormatInt(int64(b), 10)
}

// sameBytes compares amounts of memory in whole pages, rounded down as in the kernel
// (page_counter_memparse in mm/page_counter.c).
func sameBytes(want, have knobs.Value, _ bool) bool {
	a, _ := want.(knobs.Bytes)
	b, _ := have.(knobs.Bytes)
	if a < 0 || b < 0 {
		return a < 0 && b < 0
	}
	return a-a%knobs.Bytes(os.Getpagesize()) == b
}

func writeLimit(c *cgroup, s *Spec, to knobs.Change) error {
	if c.in.v2 {
		return writeBytes(c, s, to)
	}
	b, _ := to.To.(knobs.Bytes)
	return c.writeLimit1(b)
}

// writeLimit1 sets v1's memory limit. The limit of memory and swap can't be lower than that
// (EINVAL), so writeLimit1 changes both, such that the cgroup may swap as much as before: when
// growing it writes the limit with swap first, when shrinking last. If swap is not accounted,
// that file doesn't exist.
func (c *cgroup) writeLimit1(want knobs.Bytes) error {
	swap, err := c.bytes(swapFile1)
	if errors.Is(err, syscall.ENOENT) || err == nil && swap < 0 {
		return c.writeInTurns(limitFile1, bytesText(want, "-1"))
	}
	if err != nil {
		return err
	}
	limit, err := c.bytes(limitFile1)
	if err != nil {
		return err
	}
	both := want
	if want >= 0 {
		both += swap - limit
	}
	if want < 0 || both > swap {
		if err := c.writeInTurns(swapFile1, bytesText(both, "-1")); err != nil {
			return err
		}
		err := c.writeInTurns(limitFile1, bytesText(want, "-1"))
		if err != nil {
			err = errors.Join(err, c.writeInTurns(swapFile1, bytesText(swap, "-1")))
		}
		return err
	}
	if err := c.writeInTurns(limitFile1, bytesText(want, "-1")); err != nil {
		return err
	}
	return c.writeInTurns(swapFile1, bytesText(both, "-1"))
}

func (c *cgroup) bytes(file string) (knobs.Bytes, error) {
	text, err := c.readCached(file)
	if err != nil {
		return 0, err
	}
	b, ok := parseBytes(text)
	if !ok {
		return 0, errors.New(file + " of " + c.dir + " is no amount of memory")
	}
	return b, nil
}
