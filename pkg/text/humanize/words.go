// Package humanize formats numbers for people, in the same way in every view.
package humanize

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Count formats a number with its noun: "1 CPU", "2 CPUs", "2 classes".
func Count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Percent formats a share of 0 to 1 in whole percent: "45%".
func Percent(share float64) string { return fmt.Sprintf("%.0f%%", share*100) }

// CPUs formats an amount of CPU, given in thousandths, to a tenth: "12.5", "3".
func CPUs[M ~int64](milli M) string {
	return strconv.FormatFloat(tenths(milli), 'f', -1, 64)
}

// AlignedCPUs formats an amount of CPU, given in thousandths, always with one decimal, so that
// the decimal points of a column are aligned: "12.5", "3.0".
func AlignedCPUs[M ~int64](milli M) string {
	return strconv.FormatFloat(tenths(milli), 'f', 1, 64)
}

func tenths[M ~int64](milli M) float64 { return float64((milli+50)/100) / 10 }

// Bytes formats an amount of memory in the largest unit in which it is 1 or more, to a tenth:
// "1.5 GiB", "64 GiB".
func Bytes(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	n, unit := float64(bytes), 0
	for ; n >= 1024 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + " " + units[unit]
}

// ShortBytes formats an amount of memory in at most three digits and the letter of the unit,
// for narrow columns: "1.5G" is 1.5 GiB, "640M" is 640 MiB.
func ShortBytes(bytes int64) string {
	const units = "BKMGTPE"
	n, unit := float64(bytes), 0
	for ; n >= 999.5 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	digits := 0
	if n < 9.95 && unit > 0 {
		digits = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', digits, 64), ".0") + units[unit:unit+1]
}

// Lasting formats a duration in its two largest units: "2h5m".
func Lasting(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d/day), int(d.Hours())%24)
}
