package web

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/web"
)

// Everything else in the status is behind one line each, which the keyboard can open.
func testMore(t *testing.T, browser context.Context) {
	n, err := newNode("4 cores", 5)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, browser, serve(t, n, web.Options{}))
	p.drawn()
	p.want(`document.querySelectorAll('#more tbody tr').length`, "0")
	line := func(id string) string { return `document.querySelector('#` + id + ` summary').textContent` }
	for id, want := range map[string]string{
		"disturbed": "Services disturbed by batch work: 2 of 3 pods of class LS",
		"advice":    "Advice: 1",
		"features":  "Features of this node: 2 supported, 1 unsupported, 1 inconclusive",
		"handlers":  "Answers to the container runtime: 101, 99 % in ≤ 5 ms",
		"errors":    "Writes refused by the kernel: 3",
	} {
		p.want(line(id), want)
	}
	p.want(line("config")+`.startsWith('Configuration: in force since ')`, "true")
	p.want(line("config")+`.endsWith('refused')`, "false")

	rows := func(id string) string {
		return `[...document.querySelectorAll('#` + id + ` tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent).join(' | ')).join('; ')`
	}
	for id, want := range map[string]string{
		"disturbed": "data/web-4 | I/O +31\u00a0% | ml/train-6 50\u00a0%, data/index-1 25\u00a0%; shop/cache-3 | CPU +12\u00a0%, run queue +4\u00a0% | data/index-1 62\u00a0%",
		"advice":    "shop/cache-3/main | it is throttled often: raise its CPU limit from 2 to 2.5",
		"features": "cpu.burst | supported | cpu.max.burst | ; memory.low | supported | memory.low | ; " +
			"cpu.identity | unsupported |  | cpu.bvt_warp_ns is a file of other kernels; cpu.idle takes its place; io.cost | inconclusive | io.cost.qos | no block device has pods' data",
		"handlers": "Synchronize | 1 | ≤ 10 ms | ≤ 10 ms; CreateContainer | 100 | ≤ 0.25 ms | ≤ 1 ms; StopContainer | 0 |  | ",
		"errors":   "cpu.quota | EINVAL | 2; memory.high | EBUSY | 1",
		"config":   "File | /etc/sluice/sluice.yaml; SHA-256 | 5f0c7a3e5f0c7a3e5f0c7a3e5f0c7a3e5f0c7a3e5f0c7a3e5f0c7a3e5f0c7a3e; Reloads | 3, of which 1 refused",
	} {
		p.eval(`document.querySelector('#`+id+` summary').focus()`, nil)
		p.do(chromedp.KeyEvent(kb.Enter))
		p.until(rows(id))
		p.want(rows(id), want)
	}

	n.changes(func(s *status.Status) {
		s.Config.Problem, s.Errors, s.Loop.Disturbed, s.Loop.Advice = "pools[0].low: 90 is above high", nil, nil, nil
		s.Handlers[2].Counts[14] = 300
	})
	p.until(line("config") + `.endsWith('; a newer file is refused')`)
	p.want(rows("config")+`.endsWith('; Not in force | pools[0].low: 90 is above high')`, "true")
	p.want(`document.querySelector('#notes').textContent.includes('pools[0].low: 90 is above high')`, "true")
	p.want(line("errors"), "Writes refused by the kernel: none")
	p.want(line("disturbed"), "Services disturbed by batch work: none of 0 pods of class LS")
	p.want(line("advice"), "Advice: none")
	p.want(rows("handlers")+`.endsWith('StopContainer | 300 | > 2000 ms | > 2000 ms')`, "true")
	p.want(`document.querySelector('#errors table').hidden`, "true")
	p.want(`document.querySelector('#errors .empty').checkVisibility()`, "true")
}
