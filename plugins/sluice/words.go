package main

import (
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// cpuList is a set with its size; the empty set is what empty says.
func cpuList(cpus cpuset.Set, empty string) string {
	if cpus.IsEmpty() {
		return empty
	}
	return cpus.String() + " (" + humanize.Count(cpus.Size(), "CPU") + ")"
}

// setOr is a set in short; the empty set is what empty says.
func setOr(set cpuset.Set, empty string) string {
	if set.IsEmpty() {
		return empty
	}
	return set.String()
}

// or is text, or what empty says.
func or(text, empty string) string {
	if text == "" {
		return empty
	}
	return text
}

// size is bytes in the largest unit, with one decimal.
func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	n, unit := float64(bytes), 0
	for ; n >= 1024 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + " " + units[unit]
}

// cpuAmount is an amount of CPU to a tenth: "12.5".
func cpuAmount(m workload.MilliCPU) string {
	return strconv.FormatFloat(float64((m+50)/100)/10, 'f', -1, 64)
}
