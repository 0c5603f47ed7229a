package cgroupfs

import (
	"bytes"
	"iter"
	"math"
	"time"
)

// numbers yields the lines "name number" of a file.
func numbers(text []byte) iter.Seq2[[]byte, int64] {
	return func(yield func([]byte, int64) bool) {
		for len(text) > 0 {
			line, rest, _ := bytes.Cut(text, []byte("\n"))
			text = rest
			if name, value, ok := bytes.Cut(line, []byte(" ")); ok && !yield(name, count(value)) {
				return
			}
		}
	}
}

// count returns the number at the start of a text, clamped to the largest int64.
func count(text []byte) int64 {
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		if n > (math.MaxInt64-9)/10 {
			return math.MaxInt64
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// add adds two counts and clamps the sum to the largest int64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Microsecond))) * time.Microsecond
}
