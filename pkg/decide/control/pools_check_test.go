package control

import (
	"fmt"
	"testing"
)

func TestChecks(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	for _, p := range shipped() {
		if got := p.Check(); len(got) > 0 {
			t.Errorf("%s: %v", p.Name, got)
		}
	}
	if got := append(cfg.Pools.Check(), cfg.Batch.Check()...); len(got) > 0 {
		t.Errorf("as shipped: %v", got)
	}
	for want, got := range map[string][]Problem{
		"[{high 50: must be 51 to 100 (percent)}]":         (&PoolConfig{Low: 50, High: 50}).Check(),
		"[{rcfMax 50: must be 60 to 1000 (percent)}]":      (&PoolConfig{Low: 30, High: 50, RCFMin: 60, RCFMax: 50}).Check(),
		"[{min -1: must be 0 to 8192}]":                    (&PoolConfig{Low: 30, High: 50, Min: -1}).Check(),
		"[{floorPercent 101: must be 0 to 100 (percent)}]": (&BatchConfig{FloorPercent: 101, FloorCPUs: 1, GrowPercent: 1}).Check(),
		"[{slowWindow 0s: must be 1s to 1h0m0s}]":          (&PoolsConfig{ShrinkAfter: 1, GrowCPUs: 1, ShrinkCPUs: 1}).Check(),
	} {
		if fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	var m Mechanism
	if err := m.UnmarshalText([]byte("both")); err != nil || m != ByBoth {
		t.Errorf("%s, %v", m, err)
	}
	if err := m.UnmarshalText([]byte("shares")); err == nil || err.Error() != "must be auto, quota, cpuset or both" {
		t.Error(err)
	}
}
