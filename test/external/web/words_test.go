package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/web"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// openChanged opens the page of a node with 4 CPUs, whose every status has that change.
func openChanged(t *testing.T, browser context.Context, containers int, change func(*status.Status)) *tab {
	t.Helper()
	n, err := newNode("4 cores", containers)
	if err != nil {
		t.Fatal(err)
	}
	n.changes(change)
	p := open(t, browser, serve(t, n, web.Options{}))
	p.until(`document.querySelector('[role=gridcell]')`)
	return p
}

// Classes, notes and figures of pools are words, and the page explains each word that needs it.
func testWords(t *testing.T, browser context.Context) {
	p := openChanged(t, browser, 6, func(s *status.Status) {
		s.Pools[1].RCFRatio = 0.43
		s.Pools[1].Load.ShortCPUs, s.Pools[1].Load.WantedCPUs, s.Pools[1].Load.Usage = 2, 7, 1770
		for i := range s.Containers {
			s.Containers[i].Usage.CPU.ThrottledFraction, s.Containers[i].Warnings = 0, nil
		}
		s.Loop.Batch.BoundsPercent, s.Loop.Batch.BoundsWhy = 49, "shop/web waits too long"
		c := &s.Containers[0]
		c.Class, c.Drift, c.Controlled, c.Usage.CPU.ThrottledFraction, c.Usage.CPU.LoopLimit = workload.LSR, 1, false, 0.5, 3000
		c.Usage.Memory.OOMKills, c.Lacks, c.Warnings = 1, []status.Lack{{Key: "a", Text: "b"}}, []string{"c"}
		s.Containers[1].Tier = new(workload.TierFree)
		c.Settings[0].Problem, c.Settings[0].Contested, c.Settings[0].Drift = "EBUSY", true, 2
	})
	p.drawn()
	cell := func(class string) string {
		return `[...document.querySelectorAll('#table td.short')].find((cell) => cell.textContent === '` + class + `')`
	}
	p.want(cell("BE")+`.getAttribute('aria-label')`, "BE: batch work")
	p.want(cell("BE")+`.title`, "Best effort: batch work, which gets what services leave.")
	p.want(cell("LSR")+`.getAttribute('aria-label')`, "LSR: CPUs of its own")
	p.want(cell("LSR")+`.parentElement.lastElementChild.textContent`, "throttled by its CPU limit; CPU limit set by Sluice; setting without effect; feature missing or replaced; "+
		"changed from outside, repaired; another program keeps changing it; setting not in force; process killed: out of memory; counted but not placed")
	p.want(`[...document.querySelectorAll('.tank')][1].querySelector('ul').innerText.replaceAll('\u00a0', ' ')`, strings.Join([]string{
		"3 CPUs, 1.77 in use", "4 containers request 3.75 CPUs", "CPUs are 43 % of those requested (RCF, requested-CPU fraction)",
		"Aims at a load of 45 to 60 % (band)", "Should have 7 CPUs", "Short of 2 CPUs", "A task waits for CPU 1 % of the time",
	}, "\n"))
	p.want(`document.querySelector('#batch-state').textContent`, "Batch work is open: it may use what services leave; bounds of services leave it 49 % of its CPU budget: shop/web waits too long.")

	p.eval(cell("BE")+`.parentElement.querySelector('button').click()`, nil)
	p.until(`!document.querySelector('#details').hidden`)
	p.want(`[...document.querySelectorAll('#details dt')].find((dt) => dt.textContent === 'Tier of batch work')?.nextSibling.textContent`, "free")

	press := func(text string) {
		t.Helper()
		p.eval(`[...document.querySelectorAll('#kinds button')].find((b) => b.textContent === '`+text+`').click()`, nil)
	}
	filter, found := `document.querySelector('#filter').value`, `document.querySelector('#found').textContent`
	p.want(`[...document.querySelectorAll('#kinds button')].slice(0, 4).map((b) => b.textContent).join('; ')`,
		"LSR: CPUs of its own 1; LS: service on shared CPUs 3; BE: batch work 2; throttled by its CPU limit 1")
	press("BE: batch work 2")
	p.want(filter, "class:BE")
	p.want(found, "2 of 6")
	p.want(`document.querySelector('#kinds [aria-pressed=true]').textContent`, "BE: batch work 2")
	press("LSR: CPUs of its own 1") // selects it in place of the other class
	press("setting not in force 1")
	p.want(filter, "class:lsr is:problem")
	p.want(found, "1 of 6")
	press("LSR: CPUs of its own 1")
	press("setting not in force 1")
	p.want(filter, "")
	p.want(found, "6 of 6")
	p.eval(`document.querySelector('#filter').value = 'nobody'; document.querySelector('#filter').dispatchEvent(new Event('input'))`, nil)
	p.want(`document.querySelector('#containers .empty').innerText`, "No container matches the filter.")

	p.eval(`document.querySelector('#words').open = true`, nil)
	p.until(`document.querySelectorAll('#words tbody tr').length > 10`)
	words := p.text(`document.querySelector('#words').innerText`)
	for _, want := range []string{"class LSE", "class SYSTEM", "requested-CPU fraction (RCF)", "short", "lent", "band", "floor", "CPU limit set by Sluice"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not explained: %s", want, words)
		}
	}
}

// Decisions of one controller about one object are one line, which opens to show the single ones.
func testDecisions(t *testing.T, browser context.Context) {
	now := time.Now().Truncate(time.Second)
	const squeezes = 20
	cpus := func(n int) string { return fmt.Sprintf("%d CPUs", n) }
	all := func(s *status.Status) {
		s.Time = now
		s.Loop.Decisions = []status.Decision{
			{Time: now.Add(-48 * time.Hour), Mode: control.On, Decision: control.Decision{Controller: "windows", Object: "node", Action: "open", Why: "the window has ended"}},
			{Time: now.Add(-100 * time.Second), Mode: control.On, Decision: control.Decision{Controller: "pools", Object: "pool online", Action: "grow", From: "2 CPUs", To: "3 CPUs", Why: "it is busy", Steps: 5, LastStepAt: now.Add(-90 * time.Second)}},
		}
		for i := range squeezes {
			s.Loop.Decisions = append(s.Loop.Decisions, status.Decision{Time: now.Add(time.Duration(i-squeezes) * time.Second), Mode: control.On, Decision: control.Decision{
				Controller: "batch", Object: "node", Action: "squeeze", From: cpus(40 - i), To: cpus(39 - i), Why: "reason " + cpus(i)}})
		}
	}
	n, err := newNode("4 cores", 3)
	if err != nil {
		t.Fatal(err)
	}
	n.changes(all)
	p := open(t, browser, serve(t, n, web.Options{}))
	p.drawn()
	clock := func(at time.Time) string { return at.UTC().Format(time.TimeOnly) }
	lines := `[...document.querySelectorAll('#decisions > ol > li')].map((li) => li.innerText).join('\n')`
	p.want(lines, clock(now.Add(-time.Second))+" node: batch work gets less CPU 21 CPUs → 20 CPUs (batch squeeze; 20 decisions since "+clock(now.Add(-20*time.Second))+")\n\nreason 19 CPUs\n"+
		clock(now.Add(-90*time.Second))+" pool online: gets more CPUs 2 CPUs → 3 CPUs (pools grow; 5 steps in 10 s)\n\nit is busy\n"+
		now.Add(-48*time.Hour).UTC().Format(time.DateTime)+" node: batch work may run (windows open)\n\nthe window has ended")

	single := `document.querySelectorAll('#decisions ol ol li')`
	p.want(single+`.length`, "0")
	p.eval(`document.querySelectorAll('#decisions summary')[1].focus()`, nil)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(single + `.length === 1`)
	p.eval(`document.querySelector('#decisions summary').focus()`, nil)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(single + `.length === 21`)
	p.want(single+`[0].innerText`, clock(now.Add(-time.Second))+" squeeze, 21 CPUs → 20 CPUs\n\nreason 19 CPUs")
	p.want(single+`[19].innerText`, clock(now.Add(-20*time.Second))+" squeeze, 40 CPUs → 39 CPUs\n\nreason 0 CPUs")

	// An open line stays where it is and open, and new decisions join it.
	first := `document.querySelector('#decisions > ol > li')`
	p.eval(`window.same = `+first, nil)
	n.changes(func(s *status.Status) {
		all(s)
		s.Loop.Decisions = append(s.Loop.Decisions, status.Decision{Time: now, Mode: control.On, Decision: control.Decision{Controller: "pools", Object: "pool online", Action: "shrink", From: "3 CPUs", To: "2 CPUs", Why: "it is calm"}})
	})
	p.until(single + `.length === 22`)
	p.want(`window.same === `+first, "true")
	p.want(`document.activeElement === `+first+`.querySelector('summary')`, "true")
	p.eval(`document.activeElement.blur()`, nil)
	p.until(first + `.innerText.includes('pool online: gives up CPUs 3 CPUs → 2 CPUs (pools shrink; 2 decisions since ')`)
	p.want(`window.same.isConnected && window.same.querySelector('details').open`, "true")
}

// An empty part of the page says what it would show.
func testEmpty(t *testing.T, browser context.Context) {
	p := openChanged(t, browser, 0, func(s *status.Status) {
		s.Pools, s.Loop.Decisions, s.Loop.MeasuredAt = nil, nil, s.Time.Add(-time.Minute)
	})
	for id, want := range map[string]string{
		"pools": "There are no pools.", "decisions": "Nothing has been decided.", "containers": "There are no containers.",
	} {
		p.want(`document.querySelector('#`+id+` .empty').innerText.startsWith('`+want+`')`, "true")
	}
	p.want(`/^The control loop last measured at [0-9:]{8}: /.test(document.querySelector('#notes').innerText)`, "true")
	for _, violation := range p.axe() {
		t.Error(violation)
	}
}

// Times show their zone. If the viewer chooses UTC, the browser remembers it.
func testTimeZones(t *testing.T, browser context.Context) {
	s := smallSite(t, 3)
	p := open(t, browser, s.url())
	p.do(emulation.SetTimezoneOverride("Asia/Kolkata"), chromedp.Reload())
	p.drawn()
	button, shown := `document.querySelector('#zone').textContent`, `document.querySelector('#shown').textContent`
	p.want(button, "Times: UTC+05:30")
	p.want(`/^[0-9:]{8} UTC\+05:30, live$/.test(`+shown+`)`, "true")
	config := `document.querySelector('#config summary').textContent`
	p.want(config+`.endsWith(' UTC+05:30')`, "true")
	p.do(chromedp.Click("#zone", chromedp.ByQuery))
	for range 2 {
		p.want(button, "Times: UTC")
		p.want(`/^[0-9:]{8} UTC, live$/.test(`+shown+`)`, "true")
		p.want(config+`.endsWith(' UTC')`, "true")
		p.do(chromedp.Reload())
		p.drawn()
	}
}

// A page that shows the past says so at every scroll position.
func testBanner(t *testing.T, browser context.Context) {
	p := open(t, browser, serve(t, bigNode(t), web.Options{}))
	p.drawn()
	p.want(`document.querySelector('#looking').hidden`, "true")
	p.until(`document.querySelector('#at').max - document.querySelector('#at').min >= 2`)
	p.eval(`document.querySelector('#at').focus()`, nil)
	p.do(chromedp.KeyEvent(kb.Home))
	p.until(`!document.querySelector('#looking').hidden`)
	p.want(`/^You look at the past: [0-9:]{8} UTC, [0-9]+ s ago\. Back to live$/.test(document.querySelector('#looking').innerText)`, "true")
	p.eval(`window.scrollTo(0, document.body.scrollHeight)`, nil)
	if banner := p.box("#looking"); banner.Top < 0 || banner.Top > 50 {
		t.Errorf("the banner is at %.0f", banner.Top)
	}
	p.do(chromedp.Click("#looking button", chromedp.ByQuery))
	p.until(`document.querySelector('#looking').hidden`)
	p.want(`document.activeElement.id`, "live")
}
