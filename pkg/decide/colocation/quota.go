package colocation

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const (
	// leastRun is the least time that a quota lets run in a period. Before Linux 6.18 the
	// kernel throttles a task anywhere, even while it holds a lock that services wait for, so
	// the quota must leave enough time to release the lock. A small quota therefore gets a
	// longer period.
	leastRun      = 10 * time.Millisecond
	longestPeriod = 500 * time.Millisecond
	// LeastQuota is the smallest amount of CPU that a quota can express.
	LeastQuota = workload.MilliCPU(leastRun * 1000 / longestPeriod)
)

// Quota returns the CPU quota for an amount of CPU.
func Quota(cpu workload.MilliCPU) knobs.CPUQuota {
	period := knobs.DefaultPeriod
	if run := time.Duration(max(cpu, LeastQuota)); run*period < 1000*leastRun {
		period = (1000 * leastRun / run).Round(time.Millisecond)
	}
	return knobs.CPUQuota{Quota: max(leastRun, period*time.Duration(cpu)/1000), Period: period}
}
