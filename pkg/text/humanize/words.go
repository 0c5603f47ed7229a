// Package humanize is how Sluice writes numbers for people, the same in every view.
package humanize

import (
	"fmt"
	"strconv"
	"time"
)

// Count is a number with its noun: "1 CPU", "2 CPUs".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Percent is a share of 0 to 1 in whole percent: "45%".
func Percent(share float64) string { return fmt.Sprintf("%.0f%%", share*100) }

// Lasting is a duration in its two largest units: "2h5m".
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
