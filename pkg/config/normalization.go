package config

import (
	"errors"
	"strconv"
)

// CPUNormalization divides the CPU limits of services on nodes whose CPUs do more work in the same time
// than those for which the limits were made.
type CPUNormalization struct {
	Ratio Ratio `yaml:"ratio"` // By how much the CPU limits of containers of class LS, and of those without a class, are divided, for example 1.2; 1 divides none.
}

// Ratio is a ratio in hundredths, such as 120 for "1.2".
type Ratio int

const (
	leastRatio = 1
	mostRatio  = 5
)

var errRatio = errors.New("must be a number from 1 to 5 with at most two decimals, such as 1.2")

// UnmarshalText reads a number from 1 to 5 with at most two decimals, like the annotation
// node.koordinator.sh/cpu-normalization-ratio of Koordinator.
func (r *Ratio) UnmarshalText(text []byte) error {
	for at, c := range text {
		if c != '.' && (c < '0' || c > '9') || c == '.' && len(text)-at > 3 {
			return errRatio // also what else ParseFloat reads, such as 0x1p1 and 1e0
		}
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n < leastRatio || n > mostRatio {
		return errRatio
	}
	*r = Ratio(n*100 + 0.5)
	return nil
}

// MarshalText returns the ratio without trailing zeros: "1.2".
func (r Ratio) MarshalText() ([]byte, error) {
	return []byte(r.String()), nil
}

// String returns the same text.
func (r Ratio) String() string { return strconv.FormatFloat(float64(r)/100, 'f', -1, 64) }
