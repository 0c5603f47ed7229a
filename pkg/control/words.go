package control

import (
	"math"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Quota is a CPU quota that a container is to have in place of its limit.
type Quota struct {
	ID  string // the container's
	CPU workload.MilliCPU
	Why string
}

// Advice is what a person could do about a container, a pod or a pool.
type Advice struct {
	Object string `json:"object"` // as in decisions: "pool online"
	Text   string `json:"text"`   // a sentence
}

// inCPUs is an amount as people read it: "12.5".
func inCPUs(m workload.MilliCPU) string { return rounded(float64(m)/1000, 100) }

// inGiB is an amount of memory: "1.5 GiB".
func inGiB(bytes float64) string { return rounded(bytes/(1<<30), 10) + " GiB" }

// inPercent is a share of 1: "12 %".
func inPercent(share float64) string { return rounded(share*100, 1) + " %" }

func rounded(x, parts float64) string {
	return strconv.FormatFloat(math.Round(x*parts)/parts, 'f', -1, 64)
}

// capacityOf is all CPUs of the node.
func capacityOf(v *View) workload.MilliCPU {
	online := workload.MilliCPU(0)
	for i := range v.CPUs {
		if v.CPUs[i].Known {
			online += 1000
		}
	}
	return max(online, v.Allocatable)
}

// partOf is so many percent of an amount.
func partOf(m workload.MilliCPU, percent int) workload.MilliCPU {
	return m * workload.MilliCPU(percent) / 100
}

// checkPercent, checkCount and checkTime add what is wrong with a value.
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
