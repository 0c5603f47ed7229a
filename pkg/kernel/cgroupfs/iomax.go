package cgroupfs

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Throttles: v2's io.max has a line a device; v1 has a file for each of the four
// limits. Buffered writes escape v1's. Devices that a value doesn't name are
// without limit.
var ioMaxSpec = Spec{
	Controller: "io", V1: throttles[:], V2: []string{"io.max"}, Default: knobs.PerDevice(""), ReadBack: Rounded,
	test: knobs.PerDevice(""), read: readIOMax, write: writeIOMax, same: sameIOMax,
}

// throttles are v1's files in the order of throttle.
var throttles = [4]string{
	"blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device",
	"blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device",
}

var throttleKeys = [4]string{"rbps", "wbps", "riops", "wiops"}

// throttle is a device's limits: bytes read and written, operations read and
// written, each a second.
type throttle [4]uint64

const noLimit = math.MaxUint64

var unthrottled = throttle{noLimit, noLimit, noLimit, noLimit}

// limit is what the kernel makes of a number for the i-th limit: operations are 32
// bits, of which v1 drops the upper (5,000,000,000 shows as 705,032,704) and v2
// clamps to the highest, which is none.
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

// parseIOMax reads io.max's lines: "8:0 rbps=1048576 wbps=max"; a limit that isn't
// named is none.
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
		text, err := c.look("io.max")
		if err != nil {
			return nil, err
		}
		return parseIOMax(text)
	}
	var all byDevice[throttle]
	for i, file := range throttles {
		text, err := c.look(file)
		if err != nil {
			return nil, err
		}
		if err := addLimits(&all, i, text); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", file, c.dir, err)
		}
	}
	return all.without(unthrottled), nil
}

// addLimits takes over the i-th of v1's files, with lines "8:0 1048576".
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

// writeIOMax writes what differs, a device at a time: the kernel takes one a write.
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
			n = 0 // v1's word for it
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
