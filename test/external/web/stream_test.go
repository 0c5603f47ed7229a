package web

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/web"
)

const (
	state = `document.querySelector('#state').textContent`
	again = `document.querySelector('#again span').textContent`
)

func smallSite(t *testing.T, containers int) *site {
	t.Helper()
	n, err := newNode("4 cores", containers)
	if err != nil {
		t.Fatal(err)
	}
	return newSite(t, n, web.Options{})
}

// Changes of the node change the page through one connection.
func testPatches(t *testing.T, browser context.Context) {
	s := smallSite(t, 5)
	p := open(t, browser, s.url())
	p.drawn()
	p.eval(`window.same = document.querySelectorAll('.c')[0]`, nil)
	names := `[...document.querySelectorAll('#table tbody button')].map((b) => b.textContent).toSorted().join(' ')`
	notes := `document.querySelector('#notes').textContent`
	before := p.text(names)
	last := before[strings.LastIndex(before, " ")+1:]

	s.node.changes(func(now *status.Status) { // one container goes, one comes, one changes
		for i := range now.Containers {
			if now.Containers[i].Ref == last {
				now.Containers[i].Ref, now.Containers[i].ID = "a/new/one", "new"
			} else {
				now.Containers[i].Pool, now.Containers[i].Warnings = "elsewhere", []string{"it has changed"}
			}
		}
		now.Why, now.Mode, now.Pools = "it is asked to", "preview", now.Pools[:2]
	})
	p.until(names + ` === 'a/new/one ` + strings.TrimSuffix(before, " "+last) + `'`)
	p.want(`[...document.querySelectorAll('#table tbody tr')].filter((row) => row.cells[2].textContent === 'elsewhere').length`, "4")
	p.want(notes, "it is asked to")
	p.want(`document.querySelector('#plugin').textContent.includes(' mode preview ')`, "true")
	p.want(`document.querySelectorAll('.tank').length`, "2")

	s.node.changes(func(now *status.Status) { now.Containers = nil })
	p.until(names + ` === ''`)
	p.want(notes, "")
	s.node.changes(nil)
	p.until(names + ` === '` + before + `'`)
	p.want(`window.same.isConnected`, "true")
	s.wasAsked("/", 1)
	s.wasAsked("/v1/stream", 1)
	s.wasAsked("/v1/topology", 1)
	s.wasAsked("/v1/status", 0)
}

// testMerge runs the examples of RFC 7396, and cases that they leave out.
func testMerge(t *testing.T, browser context.Context) {
	p := open(t, browser, smallSite(t, 0).url())
	for _, c := range [][3]string{ // document, patch and result
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":1}`, `{"__proto__":{"b":2}}`, `{"a":1,"__proto__":{"b":2}}`},
		{`{"__proto__":{"b":2}}`, `{"__proto__":{"c":{"constructor":3}}}`, `{"__proto__":{"b":2,"c":{"constructor":3}}}`},
	} {
		p.want(`import('/patch.js').then(({ merge }) => {
			const old = JSON.parse('`+c[0]+`');
			const now = JSON.stringify(merge(old, JSON.parse('`+c[1]+`')));
			return JSON.stringify(old) === '`+c[0]+`' ? now : 'the old one is ' + JSON.stringify(old);
		})`, c[2])
	}
	p.want(`import('/patch.js').then(({ merge }) => {
		const old = { a: { b: [1] }, c: { d: 2 } };
		const now = merge(old, { c: { d: 3 } });
		return now.a === old.a && old.c.d === 2;
	})`, "true")
	p.want(`({}).b`, "undefined")
}

// When the plugin ends and another one starts, the page says so and follows the new one.
func testConnectionLost(t *testing.T, browser context.Context) {
	s := smallSite(t, 5)
	p := open(t, browser, s.url())
	p.drawn()
	p.want(state, "")
	p.want(`document.querySelector('#again').hidden`, "true")
	p.eval(`window.same = document.querySelectorAll('.c')[0]`, nil)
	p.expects("ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET")
	s.stop()
	p.until(state + `.startsWith('Connection lost at ')`)
	said := p.text(state + `.slice(0, 'Connection lost at 00:00:00'.length)`)
	p.until(`/^Trying again in [1-9][0-9]* s\.$/.test(` + again + `)`)
	p.want(`document.documentElement.classList.contains('silent')`, "true")
	p.want(`document.title`, "No connection · Sluice: the node map")
	p.want(`document.querySelector('#shown').textContent.endsWith(', last seen')`, "true")
	p.want(`document.querySelectorAll('#table tbody tr').length`, "5") // the containers stay on the page
	p.until(again + ` === 'Trying again in 2 s.'`)                     // the second attempt
	p.want(state+`.includes(': the plugin does not answer (Failed to fetch). What you see is from ')`, "true")
	p.want(state+`.startsWith('`+said+`')`, "true")
	for _, violation := range p.axe() {
		t.Error(violation)
	}

	s.node.changes(func(now *status.Status) { now.Containers = now.Containers[:2] })
	s.start()
	p.do(chromedp.Evaluate(`document.querySelector('#again button').click()`, nil))
	p.until(state + ` === '' && document.querySelectorAll('#table tbody tr').length === 2`)
	p.want(`document.querySelector('#again').hidden`, "true")
	p.want(`document.documentElement.classList.contains('silent')`, "false")
	p.want(`document.title`, "Sluice: the node map")
	p.want(`document.querySelector('#shown').textContent.endsWith(', live')`, "true")
	p.want(`window.same.isConnected`, "true") // the map was not drawn again, because the machine is the same
	shown := `document.querySelector('#plugin').textContent`
	p.until(shown + ` !== '` + p.text(shown) + `'`) // the time continues
}

// A hidden page is not connected.
func testHidden(t *testing.T, browser context.Context) {
	s := smallSite(t, 3)
	p := open(t, browser, s.url())
	p.drawn()
	s.follows(1)
	see := func(hidden string) {
		t.Helper()
		p.eval(`Object.defineProperty(document, 'hidden', { configurable: true, value: `+hidden+` }); document.dispatchEvent(new Event('visibilitychange'))`, nil)
	}
	see("true")
	s.follows(0)
	p.want(state, "")
	s.node.changes(func(now *status.Status) { now.Containers = now.Containers[:1] })
	see("false")
	p.until(`document.querySelectorAll('#table tbody tr').length === 1`)
	s.follows(1)
	s.wasAsked("/v1/stream", 2)
	p.want(state, "")
}

// A viewer above the limit is told so, and is connected later.
func testTooManyViewers(t *testing.T, browser context.Context) {
	s := smallSite(t, 3)
	others, leave := context.WithCancel(t.Context())
	defer leave()
	const most = 32
	for range most {
		request, err := http.NewRequestWithContext(others, http.MethodGet, s.url()+"/v1/stream?interval=1h", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		defer response.Body.Close()
	}
	p := open(t, browser, s.url(), "status of 503")
	p.until(state + `.startsWith('No connection: 32 clients are following already, which is the most')`)
	p.until(`/^Trying again in [1-9][0-9]* s\.$/.test(` + again + `)`)
	leave()
	s.follows(0)
	p.do(chromedp.Click("#again button", chromedp.ByQuery))
	p.drawn()
	p.want(state, "")
}
