package knobs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// KnobByName returns the knob with that name, as returned by String.
func KnobByName(name string) (Knob, bool) {
	for k := range Knobs {
		if table[k].name == name {
			return k, true
		}
	}
	return 0, false
}

// UnmarshalText parses a knob's name.
func (k *Knob) UnmarshalText(text []byte) error {
	known, ok := KnobByName(string(text))
	if !ok {
		return fmt.Errorf("%.40q is no knob of this version of Sluice", text)
	}
	*k = known
	return nil
}

const (
	everything = "all" // text of the empty cpuset
	noLimit    = "max"
)

// FormatValue formats a value as text that ParseValue parses: a CPU list or "all"; "quota
// period" in µs, with "max" for an unlimited quota and without the period if it does not
// change; a burst in µs; bytes or "max"; shares and numbers in digits; the lines of a file by
// device.
func FormatValue(v Value) string {
	switch v := v.(type) {
	case CPUQuota:
		text := noLimit
		if !v.Unlimited() {
			text = micros(v.Quota)
		}
		if v.Period == 0 {
			return text
		}
		return text + " " + micros(v.Period)
	case CPUBurst:
		return micros(time.Duration(v))
	case Bytes:
		if v < 0 {
			return noLimit
		}
		return strconv.FormatInt(int64(v), 10)
	case Shares:
		return strconv.FormatInt(int64(v), 10)
	case PerDevice:
		return string(v)
	}
	return v.String() // CPUSet, Number, IOPolicy
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// ParseValue parses the text of FormatValue into the type of the knob's values.
func ParseValue(k Knob, text string) (Value, error) { return table[k].kind.parse(k, text) }

// Takes reports whether a value is of the type that the knob has.
func (k Knob) Takes(v Value) bool { return table[k].kind.is(v) }

// kind is a type of values with its text form. Knobs of one type may differ in the texts that
// they accept.
type kind struct {
	is    func(Value) bool
	parse func(Knob, string) (Value, error)
}

// The kinds of values.
var (
	cpuSet    = &kind{isA[CPUSet], parseSet}
	cpuQuota  = &kind{isA[CPUQuota], parseQuota}
	cpuBurst  = whole[CPUBurst]("µs", 0, int64(MaxBandwidth/time.Microsecond), int64(time.Microsecond))
	shares    = whole[Shares]("shares", 0, math.MaxInt64, 1)
	number    = whole[Number]("", math.MinInt64, math.MaxInt64, 1)
	percent   = whole[Number]("percent", math.MinInt64, math.MaxInt64, 1)
	policy    = &kind{isA[IOPolicy], parsePolicy}
	amount    = &kind{isA[Bytes], parseBytes}
	weights   = &kind{isA[PerDevice], func(_ Knob, text string) (Value, error) { return perDevice(ParseWeights(text)) }}
	throttles = &kind{isA[PerDevice], func(_ Knob, text string) (Value, error) { return perDevice(ParseThrottles(text)) }}
)

func isA[V Value](v Value) bool {
	_, ok := v.(V)
	return ok
}

// whole returns a kind of whole numbers of a unit, which is "" for none. One unit is scale.
func whole[V interface {
	~int64
	Value
}](unit string, least, most, scale int64) *kind {
	return &kind{isA[V], func(k Knob, text string) (Value, error) {
		n, err := parseWhole(k, text, unit, least, most)
		if err != nil {
			return nil, err
		}
		return V(n * scale), nil
	}}
}

func parseSet(k Knob, text string) (Value, error) {
	if text == everything {
		return CPUSet{}, nil
	}
	set, err := cpuset.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k, err)
	}
	return CPUSet(set), nil
}

func parsePolicy(k Knob, text string) (Value, error) {
	if text == "" || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return nil, fmt.Errorf("%s: %.60q is no policy such as no-change or idle", k, text)
	}
	return IOPolicy(text), nil
}

func parseBytes(k Knob, text string) (Value, error) {
	if text == noLimit {
		return Max, nil
	}
	n, err := parseWhole(k, text, "bytes", 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return Bytes(n), nil
}

// parseQuota parses "quota period" in µs.
func parseQuota(k Knob, text string) (Value, error) {
	quota, period, both := strings.Cut(text, " ")
	q := UnlimitedQuota()
	if quota != noLimit {
		n, err := parseWhole(k, quota, "µs", 0, int64(MaxBandwidth/time.Microsecond))
		if err != nil {
			return nil, err
		}
		q.Quota = time.Duration(n) * time.Microsecond
	}
	if both {
		n, err := parseWhole(k, period, "µs", 1, math.MaxUint32)
		if err != nil {
			return nil, err
		}
		q.Period = time.Duration(n) * time.Microsecond
	} else if !q.Unlimited() {
		return nil, fmt.Errorf("%s: %.60q names no period; write \"quota period\" in µs", k, text)
	}
	return q, nil
}

func parseWhole(k Knob, text, unit string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		of := ""
		if unit != "" {
			of = " of " + unit
		}
		return 0, fmt.Errorf("%s: %.60q is no whole number%s from %d to %d", k, text, of, least, most)
	}
	return n, nil
}

func perDevice(p PerDevice, err error) (Value, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}
