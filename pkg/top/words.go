package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// count is a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// cpus is an amount of CPU to a tenth: "12.5".
func cpus(m workload.MilliCPU) string {
	return strconv.FormatFloat(float64((m+50)/100)/10, 'f', 1, 64)
}

// percent is a share of 0 to 1 in whole percent.
func percent(share float64) string { return fmt.Sprintf("%.0f%%", share*100) }

// size is bytes in three digits or less, with the unit's letter: "1.5G" is GiB.
func size(bytes int64) string {
	n, unit := float64(bytes), 0
	for ; n >= 999.5 && unit < len("BKMGTPE")-1; unit++ {
		n /= 1024
	}
	digits := 0
	if n < 9.95 && unit > 0 {
		digits = 1
	}
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', digits, 64), ".0") + "BKMGTPE"[unit:unit+1]
}

// lasting is a duration in its two largest units.
func lasting(d time.Duration) string {
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
