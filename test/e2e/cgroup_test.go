package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// limit returns the CPU limit in a cgroup's files, of either version, or -1 for none.
func limit(t *testing.T, file func(string) (string, error)) workload.MilliCPU {
	t.Helper()
	milli, err := limitOf(file)
	must(t, err)
	return milli
}

func limitOf(file func(string) (string, error)) (workload.MilliCPU, error) {
	text, err := file("cpu.max")
	if errors.Is(err, fs.ErrNotExist) {
		quota, noQuota := file("cpu.cfs_quota_us")
		period, noPeriod := file("cpu.cfs_period_us")
		text, err = quota+" "+period, errors.Join(noQuota, noPeriod)
	}
	if err != nil {
		return 0, err
	}
	if strings.HasPrefix(text, "max ") || strings.HasPrefix(text, "-1 ") {
		return -1, nil
	}
	var quota, period int64
	_, err = fmt.Sscan(text, &quota, &period)
	if err != nil {
		return 0, err
	}
	return workload.MilliCPU(quota * 1000 / period), nil
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	must(t, err)
	return n
}

// inferred returns the request that Sluice infers from the numbers in a container's cgroup v1,
// which are those that the runtime was given.
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
