package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// limit is the CPU limit that a cgroup's files tell, of either version; -1 is none.
func limit(t *testing.T, file func(string) (string, error)) workload.MilliCPU {
	t.Helper()
	text, err := file("cpu.max")
	if err != nil {
		quota, err := file("cpu.cfs_quota_us")
		must(t, err)
		period, err := file("cpu.cfs_period_us")
		must(t, err)
		text = quota + " " + period
	}
	quota, period, _ := strings.Cut(text, " ")
	if quota == "max" || quota == "-1" {
		return -1
	}
	return workload.MilliCPU(number(t, quota) * 1000 / number(t, period))
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// inferred is the request that Sluice infers from the numbers that a container
// sees in its cgroup v1: those that the runtime was told.
func inferred(t *testing.T, pod workload.Pod, files map[string]string) workload.MilliCPU {
	t.Helper()
	milli, exact := workload.CPURequest(&pod, workload.Resources{
		Shares: uint64(number(t, files["cpu.shares"])),
		Quota:  number(t, files["cpu.cfs_quota_us"]),
		Period: uint64(number(t, files["cpu.cfs_period_us"])),
	})
	if !exact {
		t.Error("the request is not read exactly")
	}
	return milli
}
