// Package web tests the node map in Chromium.
package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/web"
)

const (
	bigCount = 500
	axeFile  = "../../../bin/tools/axe/node_modules/axe-core/axe.min.js"
)

func bigNode(t *testing.T) *node {
	t.Helper()
	n, err := newNode(bigMachine, bigCount)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPage(t *testing.T) {
	browser := openBrowser(t)
	t.Run("speed", func(t *testing.T) { testSpeed(t, browser) })
	t.Run("touched", func(t *testing.T) { testTouched(t, browser) })
	t.Run("accessibility", func(t *testing.T) { testAccessibility(t, browser) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, browser) })
	t.Run("looking back", func(t *testing.T) { testLookingBack(t, browser) })
	t.Run("hostile names", func(t *testing.T) { testHostileNames(t, browser) })
	t.Run("without a loop", func(t *testing.T) { testWithoutLoop(t, browser) })
	t.Run("token", func(t *testing.T) { testToken(t, browser) })
	t.Run("merge", func(t *testing.T) { testMerge(t, browser) })
	t.Run("patches", func(t *testing.T) { testPatches(t, browser) })
	t.Run("connection lost", func(t *testing.T) { testConnectionLost(t, browser) })
	t.Run("hidden", func(t *testing.T) { testHidden(t, browser) })
	t.Run("too many viewers", func(t *testing.T) { testTooManyViewers(t, browser) })
	t.Run("more", func(t *testing.T) { testMore(t, browser) })
	t.Run("small machines", func(t *testing.T) { testSmallMachines(t, browser) })
	t.Run("large machine", func(t *testing.T) { testLargeMachine(t, browser) })
	t.Run("phone", func(t *testing.T) { testPhone(t, browser) })
	t.Run("words", func(t *testing.T) { testWords(t, browser) })
	t.Run("decisions", func(t *testing.T) { testDecisions(t, browser) })
	t.Run("empty", func(t *testing.T) { testEmpty(t, browser) })
	t.Run("time zones", func(t *testing.T) { testTimeZones(t, browser) })
	t.Run("banner", func(t *testing.T) { testBanner(t, browser) })
}

// testSpeed logs the times of a node with 512 CPUs and 500 containers.
func testSpeed(t *testing.T, browser context.Context) {
	p := open(t, browser, serve(t, bigNode(t), web.Options{}))
	p.drawn()
	p.want(`document.querySelectorAll('[role=gridcell]').length`, "512")
	p.want(`document.querySelectorAll('#table tbody tr').length`, "500")
	var first struct{ Paint, Drawn, Bytes float64 }
	p.eval(`({
		paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1,
		drawn: performance.now(),
		bytes: performance.getEntriesByType('resource').filter((e) => !e.name.includes('/v1/')).reduce((sum, e) => sum + e.transferSize, 0),
	})`, &first)
	const updates = 6
	var ms []float64
	before := p.work()
	p.eval(`new Promise((done) => {
		const all = [];
		new PerformanceObserver((list) => {
			all.push(...list.getEntriesByName('update').map((e) => e.duration));
			if (all.length >= 6) done(all);
		}).observe({ type: 'measure' });
	})`, &ms)
	work := 1000 * (p.work() - before) / float64(len(ms))
	slices.Sort(ms)
	t.Logf("512 CPUs, 500 containers: first paint after %.0f ms, first data seen within %.0f ms, %.0f bytes of files; %d updates of %.1f to %.1f ms, median %.1f; each takes %.0f ms of a CPU with layout and painting",
		first.Paint, first.Drawn, first.Bytes, len(ms), ms[0], ms[len(ms)-1], ms[len(ms)/2], work)
	const sane = 2000 // in ms; a slower page is unusable
	if len(ms) < updates || ms[len(ms)/2] > sane {
		t.Errorf("updates take %v ms", ms)
	}
}

// axe-core finds nothing in light and dark, with everything open.
func testAccessibility(t *testing.T, browser context.Context) {
	if _, err := os.Stat(axeFile); err != nil {
		t.Skip("SKIPPED: accessibility is not tested: there is no axe-core (make web-test gets it)")
	}
	small, err := newNode("2 packages 2 nodes 8 cores 2 threads", 60)
	if err != nil {
		t.Fatal(err)
	}
	var p *tab
	for _, c := range []struct {
		scheme string
		node   *node
	}{{"light", bigNode(t)}, {"dark", small}} { // the large page takes axe several seconds
		p = open(t, browser, serve(t, c.node, web.Options{}))
		p.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.scheme}}))
		p.drawn()
		p.eval(`document.querySelectorAll('details').forEach((d) => { d.open = true }); document.querySelector('#table tbody button').click()`, nil)
		p.until(`!document.querySelector('#details').hidden`)
		for _, violation := range p.axe() {
			t.Errorf("%s: %s", c.scheme, violation)
		}
	}
	p.want(`getComputedStyle(document.body).backgroundColor`, "rgb(18, 22, 27)")
	for _, want := range []string{"dark", "light", "system"} { // the order of the button
		p.do(chromedp.Click("#theme", chromedp.ByQuery))
		p.want(`document.documentElement.dataset.theme`, want)
		ground := map[string]string{"light": "rgb(244, 246, 248)"}[want]
		if ground == "" {
			ground = "rgb(18, 22, 27)"
		}
		p.want(`getComputedStyle(document.body).backgroundColor`, ground)
	}
}

// Everything can be reached and operated by keyboard.
func testKeyboard(t *testing.T, browser context.Context) {
	p := open(t, browser, serve(t, bigNode(t), web.Options{}))
	p.drawn()
	focus := `(document.activeElement.dataset.cpu ?? document.activeElement.id)`
	press := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			p.do(chromedp.KeyEvent(key))
		}
	}
	tabTo := func(condition string) {
		t.Helper()
		for range 30 {
			press(kb.Tab)
			if p.text(condition) == "true" {
				return
			}
		}
		t.Fatalf("thirty tabs don't reach %s", condition)
	}
	press(kb.Tab)
	p.want(`document.activeElement.className`, "skip")
	press(kb.Enter)
	p.want(focus, "containers")
	p.eval(`document.activeElement.blur(); document.querySelector('.skip').focus()`, nil)
	tabTo(`document.activeElement.id === 'at'`)

	tabTo(`document.activeElement.dataset.cpu === '0'`)
	press(kb.ArrowRight, kb.ArrowRight)
	p.want(focus, "2")
	press(kb.ArrowLeft)
	p.want(focus, "1")
	press(kb.End)
	p.want(focus, "15") // the next CPU of the L3
	press(kb.Home, kb.ArrowDown)
	p.want(`document.activeElement.getBoundingClientRect().top > document.querySelector('[data-cpu="0"]').getBoundingClientRect().top`, "true")
	press(kb.ArrowUp)
	p.want(focus, "0")
	if label := p.text(`document.activeElement.getAttribute('aria-label')`); !strings.HasPrefix(label, "CPU 0, reserved: no container, ") || !strings.HasSuffix(label, "% busy") {
		t.Errorf("a screen reader hears %q", label)
	}
	p.want(`[...document.querySelectorAll('[role=gridcell]')].filter((c) => c.tabIndex === 0).length`, "1")
	press(kb.ArrowLeft) // there is none, so the focus stays
	p.want(focus, "0")
	press(kb.Enter)
	p.want(`document.querySelector('#filter').value`, "cpu:0")

	tabTo(`document.activeElement.id === 'filter'`)
	p.eval(`document.activeElement.select()`, nil)
	p.do(chromedp.KeyEvent("class:lse"))
	p.want(`document.querySelectorAll('#table tbody tr').length`, "13")
	tabTo(`document.activeElement.textContent === 'Container'`)
	press(kb.Enter)
	p.want(`document.activeElement.closest('th').getAttribute('aria-sort')`, "ascending")
	tabTo(`Boolean(document.activeElement.dataset.id)`)
	press(kb.ArrowDown)
	p.want(`document.activeElement.textContent === document.querySelectorAll('#table tbody button')[1].textContent`, "true")
	press(kb.Enter)
	p.until(`!document.querySelector('#details').hidden`)
	p.want(`document.querySelector('#details-title').textContent === 'Container ' + document.activeElement.textContent`, "true")
	p.want(`document.querySelectorAll('.c.hit').length`, "8")
	press(kb.Escape)
	p.want(`document.querySelector('#details').hidden`, "true")
	p.want(`Boolean(document.activeElement.dataset.id)`, "true")
}

// The recent past can be viewed while time continues.
func testLookingBack(t *testing.T, browser context.Context) {
	p := open(t, browser, serve(t, bigNode(t), web.Options{}))
	p.drawn()
	asked := `Number(document.querySelector('#plugin').textContent.match(/^test-([0-9]+)/)[1])` // of the status that is shown
	p.until(asked + ` >= 4`)
	decided := p.text(`document.querySelectorAll('#decisions > ol > li').length`)
	p.eval(`document.querySelector('#at').focus()`, nil)
	p.do(chromedp.KeyEvent(kb.Home))
	p.until(asked + ` === 1`)
	p.want(`document.querySelector('#live').getAttribute('aria-pressed')`, "false")
	p.want(`document.querySelector('#at').getAttribute('aria-valuetext').endsWith(' ago')`, "true")
	if now := p.text(`document.querySelectorAll('#decisions > ol > li').length`); now == decided {
		t.Errorf("at the beginning there are as many decisions as later: %s", now)
	}
	p.eval(`window.end = document.querySelector('#at').max`, nil)
	p.until(`document.querySelector('#at').max > window.end`) // time continues
	p.want(asked, "1")
	for range 4 { // one second each
		p.do(chromedp.KeyEvent(kb.ArrowRight))
	}
	p.until(asked + ` > 1`)
	p.do(chromedp.Click("#live", chromedp.ByQuery))
	p.until(asked + ` >= 5`)
	p.want(`document.querySelector('#shown').textContent.endsWith('live')`, "true")
	p.want(`document.querySelector('#said').textContent !== ''`, "true")
}

// The page shows any pod name as text.
func testHostileNames(t *testing.T, browser context.Context) {
	n, err := newNode("4 cores", 12)
	if err != nil {
		t.Fatal(err)
	}
	evil := []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(2)>`, `'; alert(3); '`, "\u202egpj.exe\u202c \u2066x\u2069 \u200b\ufeff", "\x00\x1b[2J\x7f\u0085",
		strings.Repeat("x", 10_000), "{{constructor.constructor('alert(4)')()}}", `</textarea></title></style><svg onload=alert(5)>`, "__proto__", "javascript:alert(6)", "שלום עולם", "",
	}
	n.change = func(s *status.Status) {
		for i := range s.Containers {
			c, text := &s.Containers[i], evil[i]
			c.ID, c.Ref, c.Why, c.PodUID, c.Cgroup, c.Pool = text, text, text, text, text, text
			c.Warnings = []string{text}
			c.Keys[0].Key, c.Keys[0].Value, c.Keys[0].Source = text, text, text
			c.Settings[0].Value, c.Settings[0].Why, c.Settings[0].Problem, c.Settings[0].Suspect = text, text, text, text
			c.Lacks = []status.Lack{{Key: text, Text: text}}
			s.Contested = append(s.Contested, text)
		}
		for i := range s.Loop.Decisions {
			d := &s.Loop.Decisions[i]
			d.Object, d.Why, d.To = evil[i%len(evil)], evil[i%len(evil)], evil[i%len(evil)]
		}
		s.Pools[0].Name, s.Why, s.Loop.Batch.Why, s.Runtime.Name = evil[0], evil[1], evil[1], evil[1]
		s.Containers[0].CPUs = s.Machine.Online
		s.Config.Problem, s.Config.File, s.Config.Hash = evil[0], evil[1], evil[4]
		for i, text := range evil {
			s.Features = append(s.Features, status.Feature{Name: text, State: status.FeatureState(text), File: text, Why: text})
			s.Handlers = append(s.Handlers, status.Handler{Event: text, Counts: s.Handlers[0].Counts})
			s.Errors = append(s.Errors, status.KnobErrors{Knob: text, Errno: text, Count: i})
			s.Loop.Advice = append(s.Loop.Advice, control.Advice{Object: text, Text: text})
			s.Loop.Disturbed = append(s.Loop.Disturbed, control.Disturbance{Ref: text, Suspects: []control.Suspect{{Ref: text}}})
		}
	}
	p := open(t, browser, serve(t, n, web.Options{}))
	p.drawn()
	p.want(`document.querySelectorAll('#table tbody tr').length`, "12")
	p.eval(`document.querySelectorAll('details').forEach((d) => { d.open = true })`, nil)
	p.until(`document.querySelectorAll('#more tbody tr').length > 50`)
	for i := range evil {
		p.eval(fmt.Sprintf(`[...document.querySelectorAll('#table tbody button')].toSorted((a, b) => a.dataset.id < b.dataset.id ? -1 : 1)[%d].click()`, i), nil)
		p.want(`document.querySelector('#details').hidden`, "false")
	}
	p.until(`document.querySelector('#plugin').textContent.startsWith('test-3')`)
	p.want(`document.querySelectorAll('script, style, img, iframe, object, svg').length`, "2") // the page's own script and time line
	p.want(`/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/.test(document.body.innerText)`, "false")
	for _, where := range []string{`'#table tbody button'`, `'#disturbed tbody th'`, `'#advice td'`, `'#features td'`, `'#handlers th'`, `'#errors td'`} {
		names := p.text(`[...document.querySelectorAll(` + where + `)].map((b) => b.textContent).join('|')`)
		for _, want := range []string{evil[0], evil[1], "⟨202e⟩gpj.exe⟨202c⟩", "⟨0000⟩⟨001b⟩[2J", "(10000 signs)", "__proto__", "שלום עולם"} {
			if !strings.Contains(names, want) {
				t.Errorf("%q is not shown in %s: %s", want, where, names)
			}
		}
	}
	p.want(`document.documentElement.scrollWidth <= window.innerWidth`, "true")
}

// testWithoutLoop shows a plugin without the loop, and one that fails for a while.
func testWithoutLoop(t *testing.T, browser context.Context) {
	n, err := newNode("2 packages 4 cores memory-nodes 1 64G offline 7", 0)
	if err != nil {
		t.Fatal(err)
	}
	n.change = func(s *status.Status) {
		s.Loop, s.Pools[0].Load, s.Containers = nil, nil, nil
		s.Runtime, s.Features, s.Handlers, s.Errors = status.Runtime{}, nil, nil, nil // a stream omits zero values
	}
	p := open(t, browser, serve(t, n, web.Options{}))
	p.until(`document.querySelectorAll('[role=gridcell]').length === 7`)
	p.want(`document.querySelector('#batch-state').textContent`, "There is no control loop (control.mode is off). With it, the CPU and memory that the node and batch work use would show here.")
	p.want(`document.querySelector('#disturbed summary').textContent`, "Services disturbed by batch work: not measured without the control loop")
	p.want(`document.querySelector('#size').textContent.endsWith('; NUMA nodes 2 have memory but no CPU; CPUs 7 are offline')`, "true")

	p.want(`document.querySelector('#notes').textContent`, "The runtime is not connected.")
	p.want(`[...document.querySelectorAll('#more summary')].slice(3, 6).map((line) => line.textContent).join('; ')`,
		"Features of this node: 0 supported, 0 unsupported, 0 inconclusive; Answers to the container runtime: none; Writes refused by the kernel: none")
	p.want(state, "")
	p.expects("status of 503")
	n.fail(errors.New("sluice is shutting down"))
	p.until(state + `.includes(': sluice is shutting down. ')`)
	p.want(state+`.startsWith('Connection lost at ')`, "true")
	p.want(`document.querySelectorAll('[role=gridcell]').length`, "7") // the CPUs stay on the page
	n.fail(nil)
	p.until(state + ` === ''`)
}

func testToken(t *testing.T, browser context.Context) {
	const token = "0123456789abcdef"
	n, err := newNode("4 cores", 3)
	if err != nil {
		t.Fatal(err)
	}
	address := serve(t, n, web.Options{Token: token})
	p := open(t, browser, address)
	p.until(`location.pathname === '/login'`)
	p.want(`getComputedStyle(document.querySelector('#wrong')).display`, "none")
	p.do(chromedp.SendKeys("#token", "wrong"+kb.Enter, chromedp.ByQuery))
	p.until(`location.hash === '#wrong' && getComputedStyle(document.querySelector('#wrong')).display === 'block'`)
	if found := p.axe(); len(found) > 0 {
		t.Errorf("the form: %s", found)
	}
	p.do(chromedp.SendKeys("#token", token+kb.Enter, chromedp.ByQuery))
	p.until(`location.pathname === '/' && document.querySelectorAll('#table tbody tr').length === 3`)
	p.want(`document.cookie`, "") // scripts can't read it
}

// TestScreenshots writes the pictures of docs/web.md for: make web-screenshots.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("SLUICE_SCREENSHOTS")
	if folder == "" {
		t.Skip("the pictures are made by make web-screenshots")
	}
	small, err := newNode("8 cores 2 threads memory 64G", 40)
	if err != nil {
		t.Fatal(err)
	}
	browser := openBrowser(t)
	for _, c := range []struct {
		name, scheme string
		node         *node
	}{{"light", "light", bigNode(t)}, {"dark", "dark", bigNode(t)}, {"small", "light", small}} {
		p := open(t, browser, serve(t, c.node, web.Options{}))
		p.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: c.scheme}}),
			emulation.SetDeviceMetricsOverride(1360, 900, 1, false))
		p.drawn()
		p.until(`document.querySelectorAll('#decisions > ol > li').length >= 6`)
		var picture []byte
		p.do(chromedp.CaptureScreenshot(&picture))
		picture = withFewColours(t, picture)
		if err := os.WriteFile(filepath.Join(folder, "web-"+c.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d KiB", c.name, len(picture)>>10)
	}
}

// withFewColours keeps the 256 most frequent colours of a PNG, which makes it much smaller.
func withFewColours(t *testing.T, picture []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.Color]int{}
	area := from.Bounds()
	for y := range area.Dy() {
		for x := range area.Dx() {
			counts[from.At(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	palette := color.Palette(all[:min(len(all), 256)])
	nearest := map[color.Color]uint8{}
	for _, c := range all {
		nearest[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(area, palette)
	for y := range area.Dy() {
		for x := range area.Dx() {
			to.SetColorIndex(x, y, nearest[from.At(x, y)])
		}
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, to); err != nil {
		t.Fatal(err)
	}
	return small.Bytes()
}
