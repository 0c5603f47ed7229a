package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sluice-dev/sluice/pkg/view/web"
)

// patience allows for a busy machine.
const patience = time.Minute

// openBrowser starts Chromium, which ends with the test.
func openBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("SKIPPED: the page is not tested: there is no Chromium (make packages installs it)")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WindowSize(1600, 1200), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's sandbox doesn't work as root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // waits, because Chromium writes to its folder until it ends
			t.Logf("closing the browser: %v", err)
		}
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// site is a node's page at an address of this machine.
type site struct {
	*testing.T
	node    *node
	options web.Options
	address string
	server  *http.Server

	mu      sync.Mutex
	asked   map[string]int // number of requests by path
	streams int            // number of open streams
}

// serve serves a node's page at an address of this machine.
func serve(t *testing.T, n *node, o web.Options) string {
	t.Helper()
	return newSite(t, n, o).url()
}

func newSite(t *testing.T, n *node, o web.Options) *site {
	t.Helper()
	s := &site{T: t, node: n, options: o, address: "127.0.0.1:0", asked: map[string]int{}}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *site) url() string { return "http://" + s.address }

// start serves as a plugin that has just started, at the address of the previous one.
func (s *site) start() {
	s.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	s.address = listener.Addr().String()
	next := web.Handler(s.options, s.node)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.count(r.URL.Path)()
		next.ServeHTTP(w, r)
	})}
	s.server = server
	go server.Serve(listener)
}

// stop ends the plugin and all connections to it.
func (s *site) stop() { s.server.Close() }

// count counts a request. Call end when it ends.
func (s *site) count(path string) (end func()) {
	open := map[string]int{"/v1/stream": 1}[path]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[path]++
	s.streams += open
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams -= open
	}
}

// follows waits until that many streams are open.
func (s *site) follows(want int) {
	s.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		open := s.streams
		s.mu.Unlock()
		if open == want {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("%d streams are open, want %d", open, want)
		}
	}
}

// wasAsked compares how often a path was requested.
func (s *site) wasAsked(path string, want int) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[path] != want {
		s.Errorf("%s is asked for %d times, want %d", path, s.asked[path], want)
	}
}

// tab is a page in the browser with its errors.
type tab struct {
	*testing.T
	ctx context.Context //nolint:containedctx // chromedp's handle of the tab

	mu     sync.Mutex
	wrongs []string
	expect []string // parts of expected errors
}

// open opens a page. When the test ends, the page must have had no errors but expected ones, and
// must have requested nothing from another host.
func open(t *testing.T, browser context.Context, address string, expected ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{T: t, ctx: ctx, expect: expected}
	own, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	chromedp.ListenTarget(ctx, func(event any) { p.watch(own.Host, event) })
	t.Cleanup(func() {
		cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, wrong := range p.wrongs {
			t.Error(wrong)
		}
	})
	if err := chromedp.Run(ctx); err != nil { // the tab lives as long as the context of its first run
		t.Fatal(err)
	}
	p.do(network.Enable(), log.Enable(), runtime.Enable(), page.Enable(), chromedp.Navigate(address))
	return p
}

func (p *tab) watch(host string, event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wrong := func(words ...string) {
		text := strings.Join(words, " ")
		if !slices.ContainsFunc(p.expect, func(part string) bool { return strings.Contains(text, part) }) {
			p.wrongs = append(p.wrongs, text)
		}
	}
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if asked, err := url.Parse(e.Request.URL); err != nil || asked.Host != host {
			wrong("asked elsewhere:", e.Request.URL)
		}
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			wrong("console:", string(arg.Value), arg.Description)
		}
	case *runtime.EventExceptionThrown:
		wrong("exception:", e.ExceptionDetails.Error())
	case *log.EventEntryAdded: // violations of the content security policy, too
		if e.Entry.Level == log.LevelWarning || e.Entry.Level == log.LevelError {
			wrong("log:", e.Entry.Text, e.Entry.URL)
		}
	case *page.EventJavascriptDialogOpening:
		wrong("dialog:", e.Message)
	}
}

func (p *tab) do(actions ...chromedp.Action) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

// eval evaluates an expression or awaits its promise, and stores the result in what into points
// to.
func (p *tab) eval(expression string, into any) {
	p.Helper()
	p.do(chromedp.Evaluate(expression, into, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
}

// text returns an expression's value as text.
func (p *tab) text(expression string) string {
	p.Helper()
	var text string
	p.eval("Promise.resolve("+expression+").then(String)", &text)
	return text
}

// until waits for a condition, also while the page changes its address.
func (p *tab) until(condition string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		var is bool
		err := chromedp.Run(ctx, chromedp.Evaluate("Boolean("+condition+")", &is))
		switch {
		case is && err == nil:
			return
		case ctx.Err() != nil:
			p.Fatalf("it does not come: %s (%v)", condition, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// want compares an expression's value.
func (p *tab) want(expression, want string) {
	p.Helper()
	if got := p.text(expression); got != want {
		p.Errorf("%s is %q, want %q", expression, got, want)
	}
}

// expects accepts errors with these parts from now on.
func (p *tab) expects(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expect = parts
}

// axe lists the findings of axe-core, or nothing without axe-core.
func (p *tab) axe() (found []string) {
	p.Helper()
	axe, err := os.ReadFile(axeFile)
	if err != nil {
		return nil
	}
	p.eval(string(axe)+"\n;0", nil)
	p.eval(`axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) =>
		v.id + ' (' + v.impact + ') ' + v.help + ': ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? '')).join(' | ')))`, &found)
	return found
}

// drawn waits for the first drawing.
func (p *tab) drawn() {
	p.Helper()
	p.until(`document.querySelector('#table tbody tr')`)
}
