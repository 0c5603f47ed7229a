package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// ran is what a command prints in a pod.
type ran struct {
	out, errs string
	exit      int
	hangs     bool
}

// runs is a command in a pod of a node.
type runs func(node string, words []string) ran

// one answers what is about one pod, and reports whether it is.
func (a *api) one(w http.ResponseWriter, r *http.Request) bool {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	if len(parts) < 3 || parts[1] != "pods" {
		return false
	}
	i := indexOf(a.pods, parts[0], parts[2])
	switch {
	case i < 0:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "pods "+parts[2]+" not found")
	case len(parts) == 3:
		pod := a.pods[i]
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(pod)
	case a.forbidden == "exec":
		a.mutex.Lock()
		a.refused = append(a.refused, r.Method+" "+r.Header.Get("Upgrade"))
		a.mutex.Unlock()
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "pods/exec is forbidden: the user may not do it")
	default:
		a.exec(w, r, a.pods[i].Spec.NodeName)
	}
	return true
}

func indexOf(pods []corev1.Pod, namespace, name string) int {
	for i := range pods {
		if pods[i].Namespace == namespace && pods[i].Name == name {
			return i
		}
	}
	return -1
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code), Message: text})
}

// exec speaks the API server's protocol v5.channel.k8s.io: the first byte of each message is its
// stream, 1 the output, 2 the errors, 3 how the command ended.
func (a *api) exec(w http.ResponseWriter, r *http.Request, node string) {
	query := r.URL.Query()
	if query.Get("container") != "sluice" || query.Get("stdout") != "true" || query.Get("stdin") != "" {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the query is "+r.URL.RawQuery)
		return
	}
	websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error {
			c.Protocol = []string{"v5.channel.k8s.io"}
			return nil
		},
		Handler: func(c *websocket.Conn) {
			does := a.runs(node, query["command"])
			if does.hangs {
				io.Copy(io.Discard, c)
				return
			}
			const most = 16 << 10 // the API server sends a large output in many messages
			for _, stream := range []struct {
				id   byte
				text string
			}{{1, does.out}, {2, does.errs}} {
				for text := stream.text; len(text) > 0; {
					n := min(len(text), most)
					websocket.Message.Send(c, append([]byte{stream.id}, text[:n]...))
					text = text[n:]
				}
			}
			end := metav1.Status{Status: metav1.StatusSuccess}
			if does.exit != 0 {
				end = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "it failed", Details: &metav1.StatusDetails{
					Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(does.exit)}},
				}}
			}
			text, _ := json.Marshal(end)
			websocket.Message.Send(c, append([]byte{3}, text...))
			c.WriteClose(1000)     // a normal end
			io.Copy(io.Discard, c) // the client's pings: a connection that is closed with unread ones is reset, and what was sent is lost
		},
	}.ServeHTTP(w, r)
}

// pod adds a pod that is not Sluice's.
func (a *api) pod(namespace, name, node string) {
	a.pods = append(a.pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}})
}

// call runs a command line against the API server.
func (a *api) call(t *testing.T, line string) (exit int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	exit = execute(t.Context(), append(strings.Fields(line), "--kubeconfig", a.kubeconfig(t)), cli.Streams{In: strings.NewReader(a.in), Out: &stdout, Errs: &stderr})
	return exit, stdout.String(), stderr.String()
}

// shows compares what a command line prints with a file. No line is too long for a terminal, or
// contains what it would interpret.
func (a *api) shows(t *testing.T, name, line string, exit int) {
	t.Helper()
	got, out, errs := a.call(t, line)
	if got != exit || errs != "" && exit == 0 && a.in == "" {
		t.Errorf("%s: exit status %d, %s", line, got, errs)
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != out {
		t.Errorf("%s differs, %v (go test -update writes it anew); got:\n%s", file, err, out)
	}
	for line := range strings.Lines(out) {
		if strings.ContainsFunc(line, func(r rune) bool { return r == '\x1b' || r == '\u009b' }) || utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 && !strings.HasSuffix(name, "json") {
			t.Errorf("%s: the line %q is too long or has an escape", name, line)
		}
	}
}

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// statusText is a node's status as 'sluice status -o json' prints it.
func statusText(change func(*status.Status)) string {
	s := statustest.Selling(noon)
	s.Schema = status.Schema
	if change != nil {
		change(s)
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// asked is a cluster in which the commands on nodes can go wrong in every way.
func asked() *api {
	a := &api{}
	a.add("calm", "a", report(6, 2), nil, "node", "kube")
	a.add("busy", "a", "", nil, "node", "kube")
	a.add("preview", "b", "", nil, "node-canary", "kube-canary")
	a.add("stalled", "b", "", nil, "node")
	a.add("hostile", "b", "", nil, "node")
	a.add("broken", "b", "", nil, "node")
	a.add("garbage", "b", "", nil, "node")
	a.add("old", "b", "", nil, "node")
	a.add("bare", "b", "", nil)
	a.runs = func(node string, words []string) ran {
		if got := strings.Join(words, " "); got != "sluice status -o json" {
			return ran{errs: "unexpected: " + got, exit: 2}
		}
		switch node {
		case "calm":
			return ran{out: statusText(func(s *status.Status) { s.Loop.Disturbed = nil })}
		case "busy":
			return ran{out: statusText(func(s *status.Status) {
				s.Loop.Benefit.Day.Evicted, s.Loop.Benefit.Day.Squeezes = 3, 140
				s.Loop.Batch.State, s.Loop.Batch.KeptPercent = status.BatchSqueezed, 50
			})}
		case "preview":
			return ran{out: statusText(func(s *status.Status) { s.Mode, s.Loop.Disturbed = status.ModePreview, nil })}
		case "stalled":
			return ran{out: statusText(func(s *status.Status) { s.Loop.MeasuredAt, s.Loop.Disturbed = noon.Add(-time.Hour), nil })}
		case "hostile":
			return ran{out: statusText(func(s *status.Status) {
				s.Loop.Disturbed = []control.Disturbance{{Ref: "a/\x1b[2Jb\u009b1m", Learned: true, Excess: control.Strain{IOFraction: 0.5}}}
			})}
		case "broken":
			return ran{errs: "sluice: no plugin \x1b[2J answers on /run/sluice/status.sock: is it running?\n", exit: 1}
		case "garbage":
			return ran{out: "garbage \x1b[2J"}
		}
		return ran{out: `{"schema": 1, "version": "v0.0.1\u001b"}`}
	}
	return a
}

func TestTop(t *testing.T) {
	t.Parallel()
	asked().shows(t, "top", "top", 1)
	asked().shows(t, "top-json", "top -o json --sort cpu -l topology.kubernetes.io/zone=a", 0)
	asked().shows(t, "top-name", "top --sort name -l topology.kubernetes.io/zone=a", 0)
	a := asked()
	a.forbidden = "exec"
	a.shows(t, "top-forbidden", "top", 1)
	if len(a.refused) == 0 || !strings.Contains(strings.Join(a.refused, ","), "POST SPDY/3.1") {
		t.Errorf("it has tried %q, and not also SPDY", a.refused)
	}
}

// docs/kubectl.md shows what the commands print.
func TestDocumentedTables(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first-day", "top-name"} {
		want, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
		if err != nil || !strings.Contains(string(page), "```text\n"+string(want)+"```\n") {
			t.Errorf("the page lacks a block with testdata/%s.golden: copy it there (%v)", name, err)
		}
	}
}

// A node that does not answer costs no more than its time, and one that prints without end no more
// than the memory for its status.
func TestNodesThatNeverEnd(t *testing.T) {
	t.Parallel()
	a := asked()
	a.runs = func(string, []string) ran { return ran{hangs: true} }
	if exit, out, _ := a.call(t, "top --timeout 100ms"); exit != 1 || !strings.Contains(out, "--timeout") || strings.Contains(out, "calm  ") {
		t.Errorf("exit status %d\n%s", exit, out)
	}
	a = asked() // the commands that hang may still begin
	a.runs = func(string, []string) ran { return ran{out: strings.Repeat("x", 33<<20)} }
	if exit, _, errs := a.call(t, "log --node calm --timeout 10m"); exit != 1 || !strings.Contains(errs, "more than 32 MiB") {
		t.Errorf("exit status %d, %s", exit, errs)
	}
}

func TestReportAsksNodes(t *testing.T) {
	t.Parallel()
	a := asked()
	a.shows(t, "report-asked", "report --ask-nodes --memory-per-cpu 8Gi", 1)
	a.shows(t, "report-asked-json", "report --ask-nodes -o json -l topology.kubernetes.io/zone=a", 0)
	for _, amount := range []string{"x", "0", "-1Gi", "2Ei"} {
		if exit, out, errs := a.call(t, "report --memory-per-cpu "+amount); exit == 0 || out != "" || !strings.Contains(errs, "--memory-per-cpu") {
			t.Errorf("%s: exit status %d, %s", amount, exit, errs)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	a := &api{}
	a.add("n1", "", "", nil, "node")
	a.add("n2", "", "", nil)
	a.pod("data", "db-0", "n1")
	a.pod("data", "db-1", "n2")
	a.pod("data", "waiting", "")
	a.runs = func(_ string, words []string) ran {
		switch got := strings.Join(words, " "); got {
		case "sluice explain -o text data/db-0", "sluice explain -o text data/db-0/main":
			return ran{out: "data/db-0/main  LS\n  why \x1b[2J and \u009b1m\n"}
		case "sluice explain -o json data/db-0":
			return ran{out: `[{"ref": "data/db-0/main", "why": "` + "\u009b" + `"}]`}
		default:
			return ran{errs: "sluice: \x1b[2J " + got + "\n", exit: 1}
		}
	}
	a.shows(t, "explain", "explain db-0 -n data", 0)
	a.shows(t, "explain", "explain db-0/main -n data", 0)
	a.shows(t, "explain-json", "explain db-0 -n data -o json", 0)
	for line, test := range map[string]struct {
		exit int
		says string
	}{
		"explain db-1 -n data":    {1, "no pod of Sluice is on node n2"},
		"explain db-2 -n data":    {1, "pod data/db-2: the pod does not exist"},
		"explain db-0":            {1, "pod default/db-0"},
		"explain waiting -n data": {1, "runs on no node yet"},
		"explain db-0/x -n data":  {1, "node n1: sluice: \ufffd[2J"},
		"explain a/b/c":           {2, "takes one pod"},
		"explain":                 {2, "takes one pod"},
	} {
		if exit, out, errs := a.call(t, line); exit != test.exit || !strings.Contains(errs, test.says) || strings.Contains(errs, "\x1b") || out != "" {
			t.Errorf("%s: exit status %d, %q", line, exit, errs)
		}
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	a := &api{}
	for _, name := range []string{"n1", "n2", "n3"} {
		a.add(name, "", "", nil, "node")
	}
	a.pod("data", "db-0", "n1")
	a.pod("data", "waiting", "")
	a.runs = func(node string, words []string) ran {
		switch got := node + " " + strings.Join(words[1:], " "); got {
		case "n1 log --since 1h0m0s --pod data/db-0", "n1 log --pod data/db-0 --why":
			return ran{out: "2026-11-23 12:00:00  data/db-0: raise \x1b[2J\n"}
		case "n1 log --controller eviction":
			return ran{out: "2026-11-23 12:00:00  etl/gone: evict\n"}
		case "n2 log --pod etl/gone --why":
			return ran{out: "2026-11-23 12:00:00  etl/gone: evict\n    eviction: memory is short\n"}
		case "n2 log --pod etl/gone -o json":
			return ran{out: fmt.Sprintf("{\"object\":\"etl/gone\",\"why\":%q}\n{\"object\":\"etl/gone\",\"x\":\"\u009b\"}\n", "memory <is> short")}
		case "n1 log --pod etl/gone -o json", "n1 log --pod data/waiting -o json", "n2 log --pod data/waiting -o json", "n3 log --pod data/waiting -o json":
			return ran{}
		case "n3 log --pod etl/gone -o json":
			return ran{errs: "disk \x1b[2J", exit: 1}
		default:
			return ran{errs: "unexpected: " + got, exit: 1}
		}
	}
	a.shows(t, "log", "log db-0 -n data --since 1h", 0)
	a.shows(t, "log", "log db-0 -n data --why", 0)
	a.shows(t, "log-node", "log --node n1 --controller eviction", 0)
	a.shows(t, "log-gone", "log gone -n etl --why", 1)
	a.shows(t, "log-gone-json", "log gone -n etl -o json", 1)
	a.shows(t, "log-nothing", "log waiting -n data", 0)
	if _, _, errs := a.call(t, "log gone -n etl --why"); !strings.Contains(errs, "node n3 gave no answer: disk \ufffd[2J") {
		t.Errorf("it says %q of n3", errs)
	}
	for line, says := range map[string]string{
		"log":                                    "log takes a pod, or a node with --node",
		"log --node n9":                          "no pod of Sluice is on node n9",
		"log db-0 -n data --sluice-namespace x":  "--sluice-namespace",
		"log gone -n etl --sluice-namespace x":   "no pod of Sluice is in namespace x",
		"log --node n1 --since 1m --timeout 20s": "unexpected: n1 log --since 1m0s",
	} {
		if exit, out, errs := a.call(t, line); exit == 0 || !strings.Contains(errs, says) || out != "" {
			t.Errorf("%s: exit status %d, %q", line, exit, errs)
		}
	}
}
