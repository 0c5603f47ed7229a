package knobs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// KnobByName finds a knob by what String calls it.
func KnobByName(name string) (Knob, bool) {
	for i, known := range knobNames {
		if name == known {
			return Knob(i), true
		}
	}
	return 0, false
}

// UnmarshalText reads a knob's name.
func (k *Knob) UnmarshalText(text []byte) error {
	known, ok := KnobByName(string(text))
	if !ok {
		return fmt.Errorf("%.40q is no knob of this version of Sluice", text)
	}
	*k = known
	return nil
}

const (
	everything = "all" // the empty cpuset
	noLimit    = "max"
)

// FormatValue is the value as text that ParseValue reads: a CPU list or "all";
// "quota period" in µs, the quota "max" where unlimited, the period left out
// where it is to stay; a burst in µs; bytes or "max"; shares and numbers in
// digits; the lines of a file by device.
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
	return v.String() // CPUSet, Number
}

func micros(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }

// ParseValue reads what FormatValue writes, into the type that the knob has.
func ParseValue(k Knob, text string) (Value, error) {
	switch k {
	case CPUs, Mems:
		if text == everything {
			return CPUSet{}, nil
		}
		set, err := cpuset.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		return CPUSet(set), nil
	case Quota:
		return parseQuota(text)
	case IOWeight:
		return perDevice(ParseWeights(text))
	case IOMax:
		return perDevice(ParseThrottles(text))
	case Burst:
		return number(k, text, 0, maxMicros, func(n int64) Value { return CPUBurst(time.Duration(n) * time.Microsecond) })
	case Weight, BTShares:
		return number(k, text, 0, math.MaxInt64, func(n int64) Value { return Shares(n) })
	case MemoryMax, MemoryMin, MemoryLow, MemoryHigh, SoftLimit, PageCache:
		if text == noLimit {
			return Max, nil
		}
		return number(k, text, 0, math.MaxInt64, func(n int64) Value { return Bytes(n) })
	}
	return number(k, text, math.MinInt64, math.MaxInt64, func(n int64) Value { return Number(n) })
}

func number(k Knob, text string, least, most int64, as func(int64) Value) (Value, error) {
	n, err := k.number(text, least, most)
	if err != nil {
		return nil, err
	}
	return as(n), nil
}

// maxMicros is the kernel's largest quota and burst, max_cfs_runtime in
// kernel/sched/core.c: 2^44 µs.
const maxMicros = 1<<44 - 1

// parseQuota reads "quota period" in µs.
func parseQuota(text string) (Value, error) {
	quota, period, both := strings.Cut(text, " ")
	q := CPUQuota{Quota: -1}
	if quota != noLimit {
		n, err := Quota.number(quota, 0, maxMicros)
		if err != nil {
			return nil, err
		}
		q.Quota = time.Duration(n) * time.Microsecond
	}
	if both {
		n, err := Quota.number(period, 1, math.MaxUint32)
		if err != nil {
			return nil, err
		}
		q.Period = time.Duration(n) * time.Microsecond
	} else if !q.Unlimited() {
		return nil, fmt.Errorf("%s: %.60q names no period; write \"quota period\" in µs", Quota, text)
	}
	return q, nil
}

func (k Knob) number(text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: %.60q is no whole number from %d to %d", k, text, least, most)
	}
	return n, nil
}

func perDevice(p PerDevice, err error) (Value, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}
