package top

import (
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// cpus is an amount of CPU to a tenth: "12.5".
func cpus(m workload.MilliCPU) string {
	return strconv.FormatFloat(float64((m+50)/100)/10, 'f', 1, 64)
}

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
