package cgroupfs

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ioMaxSpec limits the bandwidth of block devices: v2's io.max has a line for each device, v1 a
// file for each of the four limits. v1 doesn't limit buffered writes. Devices that a value
// doesn't name have no limit.
var ioMaxSpec = Spec{
	Controller: "io", V1: throttles[:], V2: []string{"io.max"}, Default: knobs.PerDevice(""), ReadBack: Rounded,
	test: knobs.PerDevice(""), read: readIOMax, write: writeIOMax, same: sameIOMax,
}

// throttles names v1's files in the order of the limits in throttle.
var throttles = [4]string{
	"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
}

var throttleKeys = [4]string{"rbps", "wbps", "riops", "wiops"}

// throttle holds the four limits of a device, each per second: bytes read, bytes written, read
// operations and write operations.
type throttle [4]uint64

const noLimit = math.MaxUint64

var unthrottled = throttle{noLimit, noLimit, noLimit, noLimit}

// limit returns what the kernel stores for the i-th limit. Operations have 32 bits: v1 drops
// the upper bits (5,000,000,000 becomes 705,032,704), v2 clamps to the highest value, which
// means no limit.
func limit(i int, n uint64) uint64 {
	if i >= 2 && n >= math.MaxUint32 {
		return noLimit
	}
	return n
}

func (t throttle) String() string {
	var b strings.Builder
	for i, n := range t {
		if n != noLimit {
			fmt.Fprintf(&b, " %s=%d", throttleKeys[i], n)
		}
	}
	return b.String()
}

// parseIOMax reads the lines of io.max: "8:0 rbps=1048576 wbps=max". A limit that a line
// doesn't name is none.
func parseIOMax(text string) (byDevice[throttle], error) {
	var all byDevice[throttle]
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		dev, err := parseDevice(fields[0])
		if err != nil {
			return nil, fmt.Errorf("I/O limits %.80q: %w", line, err)
		}
		t := all.at(dev, unthrottled)
		for _, field := range fields[1:] {
			if err := t.set(field); err != nil {
				return nil, fmt.Errorf("I/O limits %.80q: %w", line, err)
			}
		}
	}
	return all.without(unthrottled), nil
}

func (t *throttle) set(field string) error {
	key, value, _ := strings.Cut(field, "=")
	for i, name := range throttleKeys {
		if key != name {
			continue
		}
		if value == "max" {
			t[i] = noLimit
			return nil
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("%.40q is neither max nor a number above 0", field)
		}
		t[i] = limit(i, n)
		return nil
	}
	return fmt.Errorf("%.40q is none of rbps=, wbps=, riops= and wiops=", field)
}

func formatIOMax(all byDevice[throttle]) knobs.PerDevice {
	lines := make([]string, len(all))
	for i, e := range all {
		lines[i] = e.dev.String() + e.value.String()
	}
	return knobs.PerDevice(strings.Join(lines, "\n"))
}

func (c *cgroup) throttles() (byDevice[throttle], error) {
	if c.in.v2 {
		text, err := c.readCached("io.max")
		if err != nil {
			return nil, err
		}
		return parseIOMax(text)
	}
	var all byDevice[throttle]
	for i, file := range throttles {
		text, err := c.readCached(file)
		if err != nil {
			return nil, err
		}
		if err := addLimits(&all, i, text); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", file, c.dir, err)
		}
	}
	return all.without(unthrottled), nil
}

// addLimits adds the limits in the i-th of v1's files, whose lines are "8:0 1048576".
func addLimits(all *byDevice[throttle], i int, text string) error {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		dev, err := parseDevice(name)
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("%.40q is no limit", line)
		}
		all.at(dev, unthrottled)[i] = limit(i, n)
	}
	return nil
}

func readIOMax(c *cgroup, _ *Spec) (knobs.Value, error) {
	all, err := c.throttles()
	if err != nil {
		return nil, err
	}
	return formatIOMax(all), nil
}

// writeIOMax writes the devices whose limits differ, one at a time: the kernel accepts one
// device per write.
func writeIOMax(c *cgroup, _ *Spec, to knobs.Change) error {
	text, _ := to.To.(knobs.PerDevice)
	want, err := parseIOMax(string(text))
	if err != nil {
		return err
	}
	have, err := c.throttles()
	if err != nil {
		return err
	}
	for _, e := range changes(have, want, unthrottled) {
		if err := c.throttle(e.dev, e.value, *have.at(e.dev, unthrottled)); err != nil {
			return fmt.Errorf("device %s: %w", e.dev, err)
		}
	}
	return nil
}

func (c *cgroup) throttle(dev device, to, from throttle) error {
	if c.in.v2 {
		var line strings.Builder
		line.WriteString(dev.String())
		for i, n := range to {
			value := "max"
			if n != noLimit {
				value = strconv.FormatUint(n, 10)
			}
			line.WriteString(" " + throttleKeys[i] + "=" + value)
		}
		return c.write("io.max", line.String())
	}
	for i, n := range to {
		if n == from[i] {
			continue
		}
		if n == noLimit {
			n = 0 // v1's value for no limit
		}
		if err := c.write(throttles[i], dev.String()+" "+strconv.FormatUint(n, 10)); err != nil {
			return err
		}
	}
	return nil
}

func sameIOMax(want, have knobs.Value, _ bool) bool {
	a, _ := want.(knobs.PerDevice)
	b, _ := have.(knobs.PerDevice)
	left, errA := parseIOMax(string(a))
	right, errB := parseIOMax(string(b))
	return errA == nil && errB == nil && formatIOMax(left) == formatIOMax(right)
}
