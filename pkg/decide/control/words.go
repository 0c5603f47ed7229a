package control

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Quota is a CPU quota that a container should have in place of its limit.
type Quota struct {
	ID  string // ID of the container
	CPU workload.MilliCPU
	Why string
}

// Advice is something that an operator could do about a container, pod or pool.
type Advice struct {
	Object string `json:"object"` // Object as in decisions, for example "pool online".
	Text   string `json:"text"`   // Advice in one sentence.
}

// cpus formats an amount of CPU: "12.5".
func cpus(m workload.MilliCPU) string {
	return rounded(float64(m)/1000, 10)
}

// distinctCPUs formats two amounts of CPU with as many digits as distinguish them.
func distinctCPUs(a, b workload.MilliCPU) (string, string) {
	parts := 10.0
	for parts < 1000 && a != b && rounded(float64(a)/1000, parts) == rounded(float64(b)/1000, parts) {
		parts *= 10
	}
	return rounded(float64(a)/1000, parts) + " CPUs", rounded(float64(b)/1000, parts) + " CPUs"
}

// share formats a part of a whole in percent.
func share(part, whole workload.MilliCPU) string {
	return fmt.Sprintf("%d%%", (part*100+whole/2)/max(whole, 1))
}

// perCent returns that percentage of an amount.
func perCent(m workload.MilliCPU, percent int) workload.MilliCPU {
	return m * workload.MilliCPU(percent) / 100
}

// ceil returns the amount rounded up to whole CPUs.
func ceil(m workload.MilliCPU) int { return int((m + 999) / 1000) }

// roundUp returns the least multiple of step that is n or more.
func roundUp[N int | workload.MilliCPU](n, step N) N { return (n + step - 1) / step * step }

func cpuFact(name string, m workload.MilliCPU) Fact { return Fact{name, float64(m) / 1000} }

// inCPUs formats an amount of CPU: "12.5".
func inCPUs(m workload.MilliCPU) string { return rounded(float64(m)/1000, 100) }

// inGiB formats an amount of memory: "1.5 GiB".
func inGiB(bytes float64) string { return rounded(bytes/(1<<30), 10) + " GiB" }

// inPercent formats a share of 1: "12 %".
func inPercent(share float64) string { return rounded(share*100, 1) + " %" }

func rounded(x, parts float64) string {
	return strconv.FormatFloat(math.Round(x*parts)/parts, 'f', -1, 64)
}

// capacityOf returns the CPU of the whole node.
func capacityOf(v *View) workload.MilliCPU {
	online := workload.MilliCPU(0)
	for i := range v.CPUs {
		if v.CPUs[i].Known {
			online += 1000
		}
	}
	return max(online, v.Allocatable)
}

// checkPercent, checkCount and checkTime append a problem if the value is out of range.
func checkPercent(problems []Problem, key string, value, least, most int) []Problem {
	if value >= least && value <= most {
		return problems
	}
	return append(problems, Problem{key, strconv.Itoa(value) + ": must be " + strconv.Itoa(least) + " to " + strconv.Itoa(most) + " (percent)"})
}

func checkCount(problems []Problem, key string, value, least, most int) []Problem {
	if value >= least && value <= most {
		return problems
	}
	return append(problems, Problem{key, strconv.Itoa(value) + ": must be " + strconv.Itoa(least) + " to " + strconv.Itoa(most)})
}

func checkTime(problems []Problem, key string, value, least, most time.Duration) []Problem {
	if value >= least && value <= most {
		return problems
	}
	return append(problems, Problem{key, value.String() + ": must be " + least.String() + " to " + most.String()})
}
