package colocation

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Bounds on waiting act only where something divides CPU by them.
func TestBoundsMode(t *testing.T) {
	t.Parallel()
	on, preview, off := control.On, control.Preview, control.Off
	for _, c := range []struct{ loop, slo, batch, pools, overlap, exclusive control.Mode }{
		{loop: on, overlap: on, exclusive: on},
		{loop: on, batch: off, overlap: preview, exclusive: on},
		{loop: on, pools: preview, overlap: on, exclusive: preview},
		{loop: preview, slo: on, overlap: preview, exclusive: preview},
		{loop: preview, slo: on, batch: on, overlap: on, exclusive: preview},
		{loop: on, slo: off, overlap: off, exclusive: off},
	} {
		may, cfg := Authority{Loop: c.loop, Writes: true}, &control.Config{}
		cfg.SLO.Mode, cfg.Batch.Mode, cfg.Pools.Mode = c.slo, c.batch, c.pools
		if got := may.BoundsMode(cfg, false); got != c.overlap {
			t.Errorf("%+v: %s beside shared pools", c, got)
		}
		if got := may.BoundsMode(cfg, true); got != c.exclusive {
			t.Errorf("%+v: %s with exclusive pools", c, got)
		}
	}
}
