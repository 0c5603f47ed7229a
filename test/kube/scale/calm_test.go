package scale

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/selling"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
)

// mostInCalm is how many publications a second the API server of 5,000 nodes is to get while the load is calm.
const (
	mostInCalm = 10
	ofNodes    = 5000
)

// The nodes of TestManyNodes keep to that over hours, of virtual time.
func TestCalmHours(t *testing.T) {
	t.Parallel()
	const nodes, hours = 40, 3
	began, publications := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), 0
	like := statustest.Selling(began)
	for seed := range uint64(nodes) {
		n, jitter := newNode(seed, began), rand.New(rand.NewPCG(seed, 1))
		seller := selling.NewSeller(selling.Sluice.Names())
		in := selling.Input{Connected: true, Object: &selling.Object{UID: "1", Found: map[string]*selling.Condition{}}}
		for in.Now = interval; in.Now < hours*time.Hour; in.Now += interval {
			n.measure(began.Add(in.Now))
			report, err := selling.NewReport(n.status(like, 1))
			if err != nil {
				t.Fatal(err)
			}
			in.Report, in.Heard, in.Jitter = report, in.Now, jitter.Float64()
			if p := seller.Step(&in).Publish; p != nil {
				publications++
				in.Object = &selling.Object{UID: "1", Amounts: p.Amounts, Report: p.Report, Found: map[string]*selling.Condition{}}
				for _, c := range p.Conditions {
					in.Object.Found[c.Type] = &c
				}
			}
		}
	}
	rate := float64(publications-nodes) / nodes / (hours * 3600) * ofNodes // each node begins with one
	t.Logf("%d calm nodes publish %.1f times a second", ofNodes, rate)
	if rate > mostInCalm {
		t.Errorf("%d calm nodes publish %.1f times a second, want %d at most", ofNodes, rate, mostInCalm)
	}
}
