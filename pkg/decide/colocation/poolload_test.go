package colocation

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestLoadBesideBatch computes the load of two pools that lend CPUs to batch work: online uses 3 of
// its 4 own CPUs and 1 of 4 spare ones, and critical 1 of 2 and nothing of its 2 spare ones.
func TestLoadBesideBatch(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0)
	view := func() *NodeView {
		v := &NodeView{rules: Rules{ExclusivePools: true, LendPools: true}, inPool: []int{1, 1, 1}}
		v.Pools = []control.Pool{{Name: "critical"}, {Name: "online"}, {Name: "batch"}}
		v.SetPoolCPUs([]placement.PoolCPUs{
			{CPUs: cpuset.Range(0, 3), Spare: cpuset.Range(2, 3)},
			{CPUs: cpuset.Range(4, 11), Spare: cpuset.Range(8, 11)},
			{CPUs: cpuset.Range(12, 15)},
		})
		v.Now, v.Node.CPU.At, v.Node.CPU.Interval = now, now, 100*time.Millisecond
		for _, busy := range []float64{.5, .5, 1, 1, .75, .75, .75, .75, 1, 1, 1, 1, 1, 1, 1, 1} {
			v.CPUs = append(v.CPUs, observe.CPU{Known: true, Busy: busy})
		}
		for pool, usage := range []workload.MilliCPU{900, 3900, 9000} {
			v.Containers = append(v.Containers, control.Container{Pool: pool})
			v.Containers[pool].CPU.At, v.Containers[pool].CPU.Usage = now, usage
		}
		v.BatchUse = control.Use{At: now, Usage: 9000} // 5 CPUs beside those of its own pool
		return v
	}
	check := func(name string, v *NodeView, critical, online workload.MilliCPU) {
		t.Helper()
		v.observePools()
		if v.Pools[0].Usage != critical || v.Pools[1].Usage != online || v.Pools[2].Usage != 4000 {
			t.Errorf("%s, the pools use %s, %s and %s CPUs, want %s and %s", name, v.Pools[0].Usage, v.Pools[1].Usage, v.Pools[2].Usage, critical, online)
		}
	}
	// One CPU of the spare ones is not batch work's: a third of it counts for critical.
	check("with figures of batch work", view(), 1333, 3900)

	v := view()
	v.BatchUse.At = now.Add(-time.Second)
	check("with old figures of batch work", v, 1000, 3900)
	v.BatchUse = control.Use{}
	check("without figures of batch work", v, 1000, 3900)

	v = view()
	v.Containers[1].CPU.Usage = 2000
	check("where a service's figures are older than its load", v, 1333, 3666)

	v = view()
	v.BatchUse.Usage = 4000
	check("if the others use all spare CPUs", v, 3000, 7000)
	v = view()
	v.BatchUse.Usage = 10000
	check("if they use none", v, 1000, 3900)
}
