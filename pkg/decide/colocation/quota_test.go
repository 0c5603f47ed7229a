package colocation

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/workload"
)

func TestQuota(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for cpu, want := range map[workload.MilliCPU]knobs.CPUQuota{
		4000: {Quota: 400 * ms, Period: 100 * ms},
		100:  {Quota: 10 * ms, Period: 100 * ms},
		50:   {Quota: 10 * ms, Period: 200 * ms},
		20:   {Quota: 10 * ms, Period: 500 * ms},
		1:    {Quota: 10 * ms, Period: 500 * ms},
		0:    {Quota: 10 * ms, Period: 500 * ms},
	} {
		if got := Quota(cpu); got != want {
			t.Errorf("%d milli-CPUs are %v, want %v", cpu, got, want)
		}
	}
}
