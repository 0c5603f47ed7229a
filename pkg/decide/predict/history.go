package predict

import (
	"math"
	"time"
)

// missing marks a step of a history in which nothing was measured.
const missing = math.MaxUint16

// history has the usage of the last days, step by step. A value takes two bytes, whose error is
// at most 0.4 %.
type history struct {
	step   time.Duration
	values []uint16 // ring: step k is at k modulo the length
	first  int64    // the oldest step that was entered, since the epoch
	last   int64    // the newest one; first-1 if there is none
}

func newHistory(step time.Duration) history {
	h := history{step: step, values: make([]uint16, historyTime/step)}
	h.clear()
	return h
}

// historyTime is what a history covers: twice a week, so that its period can be found.
const historyTime = 14 * 24 * time.Hour

func (h *history) clear() {
	for i := range h.values {
		h.values[i] = missing
	}
	h.first, h.last = 0, -1
}

// stepOf returns the step of a time.
func (h *history) stepOf(at time.Time) int64 {
	return floorDiv(at.Unix(), int64(h.step/time.Second))
}

// enter adds the usage of a step, which must be newer than all before.
func (h *history) enter(step int64, value float64) {
	n := int64(len(h.values))
	if h.last < h.first || step-h.last >= n {
		h.clear()
		h.first, h.last = step, step-1
	}
	for h.last < step {
		h.last++
		h.values[floorMod(h.last, n)] = missing
	}
	h.first = max(h.first, h.last-n+1)
	h.values[floorMod(step, n)] = pack(value)
}

// at returns the usage in a step.
func (h *history) at(step int64) (value float64, ok bool) {
	if step < h.first || step > h.last {
		return 0, false
	}
	packed := h.values[floorMod(step, int64(len(h.values)))]
	return unpack(packed), packed != missing
}

// most returns the highest usage in count steps, and how many of them were measured.
func (h *history) most(from, count int64) (most float64, measured int64) {
	for step := max(from, h.first); step < from+count && step <= h.last; step++ {
		if value, ok := h.at(step); ok {
			most = max(most, value)
			measured++
		}
	}
	return most, measured
}

// pack returns the upper 16 bits of a float32 below its sign, rounded up: 8 of the exponent and
// 8 of the mantissa.
func pack(value float64) uint16 {
	const dropped = 15
	bits := math.Float32bits(float32(min(max(value, 0), math.MaxFloat32/2)))
	return uint16((bits + 1<<dropped - 1) >> dropped)
}

func unpack(packed uint16) float64 { return float64(math.Float32frombits(uint32(packed) << 15)) }
