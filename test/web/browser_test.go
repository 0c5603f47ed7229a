package web

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
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

	"github.com/sluice-dev/sluice/pkg/web"
)

// patience is for a machine with other things to do.
const patience = time.Minute

// openBrowser starts Chromium; the context ends with the test.
func openBrowser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("SKIPPED: the page is not tested: there is no Chromium (make packages installs it)")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WindowSize(1600, 1200), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium's own has no use for root
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// serve shows a node at an address of this machine.
func serve(t *testing.T, n *node, o web.Options) string {
	t.Helper()
	handler := web.Handler(o, n)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/status" {
			withLoads(w, r, handler, n)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// withLoads adds the load of each CPU to a status.
func withLoads(w http.ResponseWriter, r *http.Request, handler http.Handler, n *node) {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	body := recorder.Body.Bytes()
	var s map[string]any
	if recorder.Code == http.StatusOK && json.Unmarshal(body, &s) == nil {
		if loop, ok := s["loop"].(map[string]any); ok {
			loop["node"].(map[string]any)["cpuLoad"] = n.loads()
			body, _ = json.Marshal(s)
		}
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	w.Write(body)
}

// tab is a page in the browser, with whatever went wrong in it.
type tab struct {
	*testing.T
	ctx context.Context //nolint:containedctx // chromedp's handle of the tab

	mu     sync.Mutex
	wrongs []string
	expect string // part of what may go wrong; "" nothing
}

// open opens a page. When the test ends, nothing may have gone wrong in it, and nothing
// may have been asked of another host.
func open(t *testing.T, browser context.Context, address string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{T: t, ctx: ctx}
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
		if text := strings.Join(words, " "); p.expect == "" || !strings.Contains(text, p.expect) {
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

// eval evaluates an expression, or waits for what it promises, into what into points to.
func (p *tab) eval(expression string, into any) {
	p.Helper()
	p.do(chromedp.Evaluate(expression, into, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
}

// text is an expression's value as a text.
func (p *tab) text(expression string) string {
	p.Helper()
	var text string
	p.eval("String("+expression+")", &text)
	return text
}

// until waits for a condition, also while the page goes from one address to another.
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

// expects lets that go wrong from now on.
func (p *tab) expects(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expect = text
}

// drawn waits for the first drawing.
func (p *tab) drawn() {
	p.Helper()
	p.until(`document.querySelector('#table tbody tr')`)
}
