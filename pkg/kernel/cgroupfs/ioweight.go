package cgroupfs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ioWeightSpec is the I/O weight, 1..10000 with the default 100, as in v2's io.weight. BFQ's
// weights are 1..1000 with the same default; those of CFQ (blkio.weight, kernels before 5.0)
// are 10..1000 with the default 500, so Sluice multiplies by five. A weight beyond a
// scheduler's range is clamped. v2's io.weight belongs to io.cost and has no effect on a disk whose
// io.cost.qos is disabled, where the kernel also refuses a weight for that disk alone.
var ioWeightSpec = Spec{
	Controller: "io", V1: []string{"blkio.weight", "blkio.bfq.weight"}, V2: []string{"io.weight"},
	Min: 1, Max: 10000, Default: knobs.PerDevice(""), ReadBack: Rounded,
	test: knobs.PerDevice("default 200"), read: readIOWeight, write: writeIOWeight, same: sameIOWeight,
}

// bfqWeightSpec is the weight for disks with the scheduler BFQ, which doesn't heed v2's io.weight.
var bfqWeightSpec = Spec{
	Controller: "io", V2: []string{"io.bfq.weight"},
	Min: 1, Max: 10000, Default: knobs.PerDevice(""), ReadBack: Rounded,
	test: knobs.PerDevice("default 200"), read: readIOWeight, write: writeIOWeight, same: sameIOWeight,
}

const (
	defaultWeight = 100
	deviceSuffix  = "_device" // suffix of v1's file for single devices, beside the file of the weight itself
)

// weights holds a cgroup's weight and its weights for single devices.
type weights struct {
	usual   int64
	devices byDevice[int64] // 0: the cgroup's weight applies
}

// parseIOWeight reads "default 50\n8:0 200"; a bare number is the default, too.
func parseIOWeight(text string) (weights, error) {
	w := weights{usual: defaultWeight}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[len(fields)-1], 10, 32)
		if err != nil || n < 1 || len(fields) > 2 {
			return w, fmt.Errorf("I/O weight %.80q: a line is \"default\" or a device, and a weight", line)
		}
		if len(fields) == 1 || fields[0] == "default" {
			w.usual = n
			continue
		}
		dev, err := parseDevice(fields[0])
		if err != nil {
			return w, fmt.Errorf("I/O weight %.80q: %w", line, err)
		}
		*w.devices.at(dev, 0) = n
	}
	return w, nil
}

func (w weights) format() knobs.PerDevice {
	var lines []string
	if w.usual != defaultWeight {
		lines = append(lines, "default "+strconv.FormatInt(w.usual, 10))
	}
	for _, e := range w.devices {
		lines = append(lines, e.dev.String()+" "+strconv.FormatInt(e.value, 10))
	}
	return knobs.PerDevice(strings.Join(lines, "\n"))
}

// scale describes the unit of a scheduler's file: the factor from Sluice's unit, and the range.
type scale struct{ factor, low, high int64 }

func scaleOf(file string) scale {
	switch file {
	case "io.weight":
		return scale{1, 1, 10000}
	case "blkio.weight":
		return scale{5, 10, 1000}
	}
	return scale{1, 1, 1000}
}

func (s scale) to(n int64) int64 { return min(max(n*s.factor, s.low), s.high) }

func (s scale) from(n int64) int64 { return max(1, n/s.factor) }

func (s scale) all(w weights, convert func(int64) int64) weights {
	out := weights{usual: convert(w.usual)}
	for _, e := range w.devices {
		out.devices = append(out.devices, entry[int64]{e.dev, convert(e.value)})
	}
	return out
}

// weights returns a cgroup's weights in the file's unit. v1 has a separate file for the weights
// of devices; BFQ's separate file begins with the default weight (bfq_io_show_weight in
// block/bfq-cgroup.c), so that the other file need not be read.
func (c *cgroup) weights(file string) (weights, error) {
	if !c.in.v2 {
		if text, err := c.readCached(file + deviceSuffix); err == nil && strings.HasPrefix(text, "default ") {
			return parseIOWeight(text)
		}
	}
	text, err := c.readCached(file)
	if err != nil {
		return weights{}, err
	}
	w, err := parseIOWeight(text)
	if err != nil || c.in.v2 {
		return w, err
	}
	devices, err := c.readCached(file + deviceSuffix)
	if errors.Is(err, syscall.ENOENT) {
		return w, nil
	}
	if err != nil {
		return w, err
	}
	beside, err := parseIOWeight(devices)
	w.devices = beside.devices
	return w, err
}

// weightFile returns the file of the I/O scheduler whose weight this kernel supports.
func (c *cgroup) weightFile(s *Spec) (string, error) {
	files := s.Files(c.in.v2)
	for _, file := range files {
		c.mu.RLock()
		_, open := c.files[file]
		_, beside := c.files[file+deviceSuffix]
		c.mu.RUnlock()
		if open || beside {
			return file, nil
		}
	}
	return c.first(files)
}

func readIOWeight(c *cgroup, s *Spec) (knobs.Value, error) {
	file, err := c.weightFile(s)
	if err != nil {
		return nil, err
	}
	w, err := c.weights(file)
	if err != nil {
		return nil, err
	}
	unit := scaleOf(file)
	return unit.all(w, unit.from).format(), nil
}

// writeIOWeight writes the weights that differ, one device at a time, and the default weight as
// a bare number: BFQ takes "default 200" for a device (bfq_io_set_weight in
// block/bfq-cgroup.c).
func writeIOWeight(c *cgroup, s *Spec, to knobs.Change) error {
	text, _ := to.To.(knobs.PerDevice)
	want, err := parseIOWeight(string(text))
	if err != nil {
		return err
	}
	file, err := c.weightFile(s)
	if err != nil {
		return err
	}
	have, err := c.weights(file)
	if err != nil {
		return err
	}
	unit := scaleOf(file)
	want = unit.all(want, unit.to)
	if want.usual != have.usual {
		if err := c.write(file, strconv.FormatInt(want.usual, 10)); err != nil {
			return err
		}
	}
	if !c.in.v2 {
		file += deviceSuffix
	}
	for _, e := range changes(have.devices, want.devices, 0) {
		value := "default"
		if e.value != 0 {
			value = strconv.FormatInt(e.value, 10)
		}
		if err := c.write(file, e.dev.String()+" "+value); err != nil {
			return fmt.Errorf("device %s: %w", e.dev, err)
		}
	}
	return nil
}

// sameIOWeight also accepts a difference that is due to the scheduler's range.
func sameIOWeight(want, have knobs.Value, _ bool) bool {
	a, _ := want.(knobs.PerDevice)
	b, _ := have.(knobs.PerDevice)
	left, errA := parseIOWeight(string(a))
	right, errB := parseIOWeight(string(b))
	if errA != nil || errB != nil {
		return false
	}
	if left.format() == right.format() {
		return true
	}
	for _, file := range []string{"io.bfq.weight", "blkio.weight"} {
		unit := scaleOf(file)
		if unit.all(unit.all(left, unit.to), unit.from).format() == right.format() {
			return true
		}
	}
	return false
}
