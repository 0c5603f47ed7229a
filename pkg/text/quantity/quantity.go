// Package quantity parses Kubernetes resource amounts: "100m", "1.5Gi", "1e3".
package quantity

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Amount is a Kubernetes resource amount (k8s.io/apimachinery/pkg/api/resource)
// in thousandths of its unit, rounded up.
type Amount int64

// Value returns the amount in whole units, rounded up, as Quantity.Value does.
func (q Amount) Value() int64 { return int64(q)/1000 + (int64(q)%1000+999)/1000 }

// Bytes formats an exact number of bytes in Kubernetes' notation: "2Gi", "1500".
func Bytes(n int64) string {
	suffix := ""
	for i := 0; n != 0 && n%1024 == 0 && i < len(binary); i++ {
		n, suffix = n/1024, binary[i:i+1]+"i"
	}
	return strconv.FormatInt(n, 10) + suffix
}

// binary are the suffixes of powers of 1024, each followed by an i.
const binary = "KMGTPE"

// ErrTooLarge is the error for an amount that no Amount can hold.
var ErrTooLarge = errors.New("is out of range")

var errSyntax = errors.New("must be a number with one of the suffixes m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, or none")

// maxMilli leaves room to round up to a whole unit.
const maxMilli = math.MaxInt64 - 999

// maxExponent is above the exponent of any amount that fits, and low enough to be computed
// quickly.
const maxExponent = 30

// Parse parses a decimal number followed by a suffix or an exponent. The error continues a
// sentence that names the amount: "must be ...".
func Parse(text string) (Amount, error) {
	const longest = 64
	end := strings.LastIndexAny(text, "0123456789.") + 1
	number, suffix := text[:end], text[end:]
	exponent := 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(number[i+1:]); err != nil || suffix != "" {
			return 0, errSyntax
		}
		number = number[:i]
	}
	if len(text) > longest || exponent < -maxExponent {
		return 0, errors.New("is out of range")
	}
	if strings.HasPrefix(number, "-") {
		return 0, errors.New("must not be negative")
	}
	if exponent > maxExponent {
		return 0, ErrTooLarge
	}
	number = strings.TrimPrefix(number, "+")
	if strings.Trim(number, "0123456789.") != "" {
		return 0, errSyntax
	}
	amount, ok := new(big.Rat).SetString(number)
	factor, known := scale(suffix, exponent)
	if !ok || !known {
		return 0, errSyntax
	}
	amount.Mul(amount, factor)
	milli, rest := new(big.Int).QuoRem(amount.Num(), amount.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		milli.Add(milli, big.NewInt(1))
	}
	if !milli.IsInt64() || milli.Int64() > maxMilli {
		return 0, ErrTooLarge
	}
	return Amount(milli.Int64()), nil
}

// scale returns the factor for a number with that suffix or exponent, in thousandths.
func scale(suffix string, exponent int) (factor *big.Rat, known bool) {
	power, shift := exponent+3, 0
	switch i := strings.Index("numkMGTPE", suffix); {
	case suffix == "":
	case len(suffix) == 1 && i >= 0:
		power = []int{-9, -6, -3, 3, 6, 9, 12, 15, 18}[i] + 3
	case len(suffix) == 2 && suffix[1] == 'i' && strings.IndexByte(binary, suffix[0]) >= 0:
		shift = 10 * (1 + strings.IndexByte(binary, suffix[0]))
	default:
		return nil, false
	}
	n := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(power, -power))), nil)
	if power < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), n), true
	}
	return new(big.Rat).SetInt(n.Lsh(n, uint(shift))), true
}
