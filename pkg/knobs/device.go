package knobs

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Device is a block device's number.
type Device struct{ Major, Minor uint32 }

// ParseDevice parses a device number such as "8:0".
func ParseDevice(text string) (Device, error) {
	major, minor, _ := strings.Cut(text, ":")
	a, errA := strconv.ParseUint(major, 10, 12) // MINORBITS is 20, in include/linux/kdev_t.h
	b, errB := strconv.ParseUint(minor, 10, 20)
	if errA != nil || errB != nil {
		return Device{}, fmt.Errorf("%.40q is no device number such as 8:0", text)
	}
	return Device{uint32(a), uint32(b)}, nil
}

func (d Device) String() string {
	return strconv.FormatUint(uint64(d.Major), 10) + ":" + strconv.FormatUint(uint64(d.Minor), 10)
}

// DefaultIOWeight is the weight of a new cgroup.
const DefaultIOWeight = 100

// Weights are I/O weights, 1..10000. Default is the weight for devices that are not named.
type Weights struct {
	Default int
	Devices map[Device]int
}

// PerDevice returns the canonical text: the default first, unless it is 100, and then the
// devices by number.
func (w Weights) PerDevice() PerDevice {
	var lines []string
	if w.Default == 0 {
		w.Default = DefaultIOWeight
	}
	if w.Default != DefaultIOWeight {
		lines = append(lines, "default "+strconv.Itoa(w.Default))
	}
	for _, d := range sorted(w.Devices) {
		lines = append(lines, d.String()+" "+strconv.Itoa(w.Devices[d]))
	}
	return PerDevice(strings.Join(lines, "\n"))
}

// ParseWeights parses the lines of io.weight and returns them in canonical form.
func ParseWeights(text string) (PerDevice, error) {
	w, err := parseWeights(text)
	if err != nil {
		return "", err
	}
	return w.PerDevice(), nil
}

// Weights returns the weights in a text that PerDevice or ParseWeights has returned.
func (v PerDevice) Weights() Weights {
	w, _ := parseWeights(string(v)) // such a text has no mistake
	return w
}

func parseWeights(text string) (Weights, error) {
	w := Weights{Default: DefaultIOWeight, Devices: map[Device]int{}}
	for line := range lines(text) {
		name, value, ok := strings.Cut(line, " ")
		weight, err := strconv.Atoi(value)
		if !ok || err != nil || weight < 1 || weight > 10000 {
			return w, fmt.Errorf("%s: the line %.60q is not a device and a weight from 1 to 10000", IOWeight, line)
		}
		if name == "default" {
			w.Default = weight
			continue
		}
		d, err := ParseDevice(name)
		if err != nil {
			return w, fmt.Errorf("%s: %w", IOWeight, err)
		}
		w.Devices[d] = weight
	}
	return w, nil
}

// Throttle limits I/O to one device; 0 is no limit.
type Throttle struct {
	ReadBPS, WriteBPS   int64 // bytes per second
	ReadIOPS, WriteIOPS int64 // operations per second
}

// throttleKeys are the names in io.max of the fields of a Throttle, in their order.
var throttleKeys = [...]string{"rbps", "wbps", "riops", "wiops"}

func (t *Throttle) fields() [len(throttleKeys)]*int64 {
	return [...]*int64{&t.ReadBPS, &t.WriteBPS, &t.ReadIOPS, &t.WriteIOPS}
}

// Throttles are the limits by device.
type Throttles map[Device]Throttle

// PerDevice returns the canonical text by device number, without missing limits: "8:0
// rbps=1048576 wiops=100".
func (t Throttles) PerDevice() PerDevice {
	var text strings.Builder
	for _, d := range sorted(t) {
		throttle := t[d]
		if throttle == (Throttle{}) {
			continue
		}
		if text.Len() > 0 {
			text.WriteByte('\n')
		}
		text.WriteString(d.String())
		for i, limit := range throttle.fields() {
			if *limit > 0 {
				text.WriteString(" " + throttleKeys[i] + "=" + strconv.FormatInt(*limit, 10))
			}
		}
	}
	return PerDevice(text.String())
}

// ParseThrottles parses the lines of io.max and returns them in canonical form.
func ParseThrottles(text string) (PerDevice, error) {
	throttles := Throttles{}
	for line := range lines(text) {
		name, limits, _ := strings.Cut(line, " ")
		d, err := ParseDevice(name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", IOMax, err)
		}
		throttle := throttles[d]
		for part := range strings.FieldsSeq(limits) {
			key, value, _ := strings.Cut(part, "=")
			field := slices.Index(throttleKeys[:], key)
			if field < 0 {
				return "", fmt.Errorf("%s: %.40q is none of %s", IOMax, key, strings.Join(throttleKeys[:], ", "))
			}
			limit := int64(0)
			if value != noLimit {
				if limit, err = parseWhole(IOMax, value, "", 1, math.MaxInt64); err != nil {
					return "", err
				}
			}
			*throttle.fields()[field] = limit
		}
		throttles[d] = throttle
	}
	return throttles.PerDevice(), nil
}

// lines returns the lines of text that aren't empty, without surrounding white space.
func lines(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); line != "" && !yield(line) {
				return
			}
		}
	}
}

func sorted[V any](by map[Device]V) []Device {
	devices := make([]Device, 0, len(by))
	for d := range by {
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	})
	return devices
}
