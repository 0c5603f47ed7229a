package web

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/web"
)

// The number of changed elements depends on what has changed, not on the size of the page. Here,
// the container that uses most of 500 becomes the one that uses least.
func testTouched(t *testing.T, browser context.Context) {
	n := bigNode(t)
	var calm *status.Status
	n.changes(func(s *status.Status) {
		if calm == nil {
			calm = s
			return
		}
		calm.Containers = slices.Clone(calm.Containers) // earlier statuses may still be read
		most := slices.MaxFunc(calm.Containers, func(a, b status.Container) int { return int(a.Usage.CPU.Usage - b.Usage.CPU.Usage) })
		for i := range calm.Containers {
			if calm.Containers[i].ID == most.ID {
				use := *most.Usage
				use.CPU.Usage = 0
				calm.Containers[i].Usage = &use
			}
		}
		s.Containers, s.Pools, s.Loop = calm.Containers, calm.Pools, calm.Loop
		s.Time = s.Time.Add(10 * time.Second * time.Duration(n.asked)) // so that the rows are sorted each time
	})
	p := open(t, browser, serve(t, n, web.Options{}))
	p.drawn()
	first := `document.querySelector('#table tbody button').textContent`
	before := p.text(first)
	var touched []int
	p.eval(`new Promise((done) => {
		const all = [];
		new MutationObserver((records) => {
			all.push(records.length);
			if (all.length === 3) done(all);
		}).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
	})`, &touched)
	if p.text(first) == before {
		t.Errorf("%s is still the first", before)
	}
	const most = 12 // two texts of the time; of the row its removal, its insertion and its figure
	if slices.Max(touched) > most {
		t.Errorf("updates with a change of one container touch %d things in the page, at most %d are meant", touched, most)
	}
}

// work returns the CPU time of the page's thread, which doesn't depend on what else the machine
// does.
func (p *tab) work() (seconds float64) {
	p.Helper()
	p.do(performance.Enable().WithTimeDomain(performance.EnableTimeDomainThreadTicks), chromedp.ActionFunc(func(ctx context.Context) error {
		metrics, err := performance.GetMetrics().Do(ctx)
		for _, m := range metrics {
			if m.Name == "TaskDuration" {
				seconds = m.Value
			}
		}
		return err
	}))
	return seconds
}
