package control

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// staleIntervals is how many intervals old a measurement may be that still says
// something.
const staleIntervals = 3

// recent reports whether a measurement of that time is no older than limit. One from
// the future is none: the clock has jumped since.
func recent(now, at time.Time, limit time.Duration) bool {
	age := now.Sub(at)
	return !at.IsZero() && age <= limit && age >= -limit
}

// cpus is an amount of CPU as people read it: "12.5".
func cpus(m workload.MilliCPU) string {
	return rounded(float64(m)/1000, 10)
}

// cpusApart are two amounts of CPU, with as many digits as tell them apart.
func cpusApart(a, b workload.MilliCPU) (string, string) {
	parts := 10.0
	for parts < 1000 && a != b && rounded(float64(a)/1000, parts) == rounded(float64(b)/1000, parts) {
		parts *= 10
	}
	return rounded(float64(a)/1000, parts) + " CPUs", rounded(float64(b)/1000, parts) + " CPUs"
}

// count is a number of CPUs as people read it.
func count(n int) string {
	if n == 1 {
		return "1 CPU"
	}
	return strconv.Itoa(n) + " CPUs"
}

// share is a part of a whole in percent, as people read it.
func share(part, whole workload.MilliCPU) string {
	return fmt.Sprintf("%d%%", (part*100+whole/2)/max(whole, 1))
}

// perCent is that part of an amount.
func perCent(m workload.MilliCPU, percent int) workload.MilliCPU {
	return m * workload.MilliCPU(percent) / 100
}

// ceil is the amount in whole CPUs.
func ceil(m workload.MilliCPU) int { return int((m + 999) / 1000) }

// roundUp is the least multiple of core that is n or more.
func roundUp(n, core int) int { return (n + core - 1) / core * core }

func cpuFact(name string, m workload.MilliCPU) Fact { return Fact{name, float64(m) / 1000} }
