package render

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/sim"
)

func TestSimMarkdown(t *testing.T) {
	t.Parallel()
	result := func(p sim.Policy, busy, batch, late float64) *sim.Result {
		return &sim.Result{Policy: p, UtilizationFraction: busy, BatchCPUs: batch, LateFraction: late, Series: sim.Series{NodeCPUs: 20}}
	}
	forecast := result(sim.Forecast, 0.7, 5, 0)
	forecast.Squeezes, forecast.ExpectedSqueezes, forecast.OOMKills, forecast.Evictions = 9, 4, 1, 2
	forecast.Notices = control.NoticeCounts{Given: 3, Kept: 2, False: 1}
	all := []sim.Comparison{
		{Scenario: "calm", Budget: 0.01, Results: []*sim.Result{result(sim.Static, 0.5, 2, 0), result(sim.Pools, 0.6, 4, 0.002), forecast}},
		{Scenario: "rough", Budget: 0.01, Results: []*sim.Result{result(sim.Static, 0.6, 2, 0), result(sim.Pools, 0.5, 3, 0.01), forecast}},
		{Scenario: "late", Budget: 0.01, Results: []*sim.Result{result(sim.Static, 0.9, 9, 0.5), result(sim.Pools, 0.1, 0, 0), forecast}},
	}
	var b strings.Builder
	if err := SimMarkdownHead(&b, []sim.Policy{sim.Static, sim.Pools, sim.Forecast}); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if err := SimMarkdownRow(&b, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := SimMarkdownGains(&b, all, true); err != nil {
		t.Fatal(err)
	}
	want := `| scenario | static | pools | forecast | squeezes expected | notices kept |
|---|---|---|---|---|---|
| ` + "`calm`" + ` | 50.0 / 2.0 / 10 / 0.00 | 60.0 / 4.0 / 20 / 0.20 | 70.0 / 5.0 / 25 / 0.00 (3 killed) | 4 of 9 | 2 of 3 |
| ` + "`rough`" + ` | 60.0 / 2.0 / 10 / 0.00 | 50.0 / 3.0 / 15 / 1.00 | 70.0 / 5.0 / 25 / 0.00 (3 killed) | 4 of 9 | 2 of 3 |
| ` + "`late`" + ` | 90.0 / 9.0 / 45 / 50.00 | 10.0 / 0.0 / 0 / 0.00 | 70.0 / 5.0 / 25 / 0.00 (3 killed) | 4 of 9 | 2 of 3 |

| gain of | against | scenarios | utilization: mean, worst | batch work: mean, worst |
|---|---|---|---|---|
| pools | static | 2 | +0.0, -10.0 (` + "`rough`" + `) | +7.5, +5.0 (` + "`rough`" + `) |
`
	if got := b.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
