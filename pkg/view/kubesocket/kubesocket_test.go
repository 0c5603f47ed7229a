package kubesocket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

type source struct{}

func (source) Status() (*status.Status, error) {
	return &status.Status{Version: "v7", Containers: []status.Container{{ID: "1", Pool: "shared", PodUID: "web"}, {ID: "2", PodUID: "db", CPUs: cpuset.Of(4, 5), Why: "pinned"}}}, nil
}

func (source) Machine() (*topology.Machine, error) { return nil, nil } //nolint:nilnil // not asked for

// serve serves a socket in a folder with that group and mode until the test's end; -1 is no other group.
func serve(t *testing.T, link *kubelink.Link, group int, mode os.FileMode) (socket string, client *http.Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "kube") // the test's own folder may have too long a name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := errors.Join(os.Chown(dir, -1, group), os.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "kube.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	log, _ := logtest.NewNullLogger()
	go func() { served <- Serve(ctx, Options{Path: socket, UID: 65527, Log: log}, source{}, link) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket, &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			}}}
		}
	}
	t.Fatal("no socket")
	return "", nil
}

func send(t *testing.T, client *http.Client, method, path, body string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://sluice"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// An order comes over the socket, and its answer goes back.
func TestOrderOverTheSocket(t *testing.T) {
	t.Parallel()
	link := kubelink.New()
	_, client := serve(t, link, -1, 0o700)
	response, err := client.Get("http://sluice/v1/evictions")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	type result struct {
		answer evictorder.Answer
		err    error
	}
	answered := make(chan result)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		a, err := link.Order(ctx, evictorder.Order{UID: "u", Namespace: "ns", Name: "p", GraceSeconds: 1})
		answered <- result{a, err}
	}()
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	order, err := evictorder.DecodeOrder(line)
	if err != nil || order.UID != "u" {
		t.Fatalf("%s: %v", line, err)
	}
	if code, text := send(t, client, http.MethodPost, EvictionsPath+"/"+order.ID, `{"outcome":"refused","reason":"budget"}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	if r := <-answered; r.err != nil || r.answer.Outcome != evictorder.Refused || r.answer.Reason != "budget" {
		t.Errorf("%+v", r)
	}
	for name, test := range map[string]struct {
		method, path, body, want string
		code                     int
	}{
		"again":              {"POST", EvictionsPath + "/" + order.ID, `{"outcome":"evicted"}`, "no order", 404},
		"no such outcome":    {"POST", EvictionsPath + "/x", `{"outcome":"maybe"}`, "must be evicted", 400},
		"a large answer":     {"POST", EvictionsPath + "/x", strings.Repeat(" ", evictorder.MaxMessage+1), "at most 16384 bytes", 413},
		"pods":               {"PUT", PodsPath, `[{"uid":"a","owner":"Job ns/j","priority":5}]`, "", 200},
		"pods that are none": {"PUT", PodsPath, `{}`, "JSON list", 400},
		"too many pods":      {"PUT", PodsPath, "[" + strings.Repeat(" ", maxBody) + "]", "at most 2097152 bytes", 413},
		"another route":      {"GET", "/v1/status", "", "not found", 404},
	} {
		if code, text := send(t, client, test.method, test.path, test.body); code != test.code || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %s, want %d %s", name, code, text, test.code, test.want)
		}
	}
	if p := link.Pods()["a"]; p.Owner != "Job ns/j" || p.Priority != 5 {
		t.Errorf("pods %+v", link.Pods())
	}
}

// The other container's user gets in by the folder's group, and nobody else does.
func TestSocketIsOfTheFoldersGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a folder of another group can be made by root alone")
	}
	const group = 65527
	socket, client := serve(t, kubelink.New(), group, 0o770|os.ModeSetgid)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if gid := info.Sys().(*syscall.Stat_t).Gid; info.Mode().Perm() != 0o660 || gid != group {
		t.Errorf("mode %v, group %d", info.Mode(), gid)
	}
	left, err := os.ReadDir(filepath.Dir(socket))
	if err != nil || len(left) != 1 {
		t.Errorf("the socket's folder has %v, %v", left, err)
	}
	response, err := client.Get("http://sluice/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	var first struct {
		Version    string
		Containers map[string]status.Container
	}
	if err != nil || json.Unmarshal(line, &first) != nil || first.Version != "v7" || !reflect.DeepEqual(first.Containers, map[string]status.Container{"2": {ID: "2", PodUID: "db", CPUs: cpuset.Of(4, 5)}}) {
		t.Errorf("the status stream begins with %s, %v", line, err)
	}
}

// The kubelet makes the folder without setgid. Then the socket is of the process's own group.
func TestSocketIsOfTheProcessGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: a folder of another group can be made by root alone")
	}
	socket, _ := serve(t, kubelink.New(), 65527, 0o755)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if gid := info.Sys().(*syscall.Stat_t).Gid; info.Mode().Perm() != 0o660 || int(gid) != os.Getegid() {
		t.Errorf("mode %v, group %d, want -rw-rw---- and group %d", info.Mode(), gid, os.Getegid())
	}
}

// pipes is a listener in memory, for a server in virtual time.
type pipes struct {
	calls chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) connect(t *testing.T) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	p.calls <- theirs
	if _, err := io.WriteString(ours, "GET /v1/evictions HTTP/1.1\r\nHost: sluice\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return ours
}

// A client that accepts no line is dropped after ten seconds, and then counts as away. The order
// ends by its own deadline meanwhile, so that the control loop never waits for the client.
func TestStalledClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		link := kubelink.New()
		p := &pipes{calls: make(chan net.Conn), done: make(chan struct{})}
		log, _ := logtest.NewNullLogger()
		server := &http.Server{Handler: handler(source{}, link, &Options{Log: log})}
		go server.Serve(p)
		client := p.connect(t)
		if _, err := http.ReadResponse(bufio.NewReaderSize(client, 16), nil); err != nil { // reads nothing after it
			t.Fatal(err)
		}
		synctest.Wait()
		if !link.IsConnected() {
			t.Fatal("the client is not connected")
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := link.Order(ctx, evictorder.Order{UID: "u", Namespace: "ns", Name: "p"}); err == nil || time.Since(began) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if link.IsConnected() {
			t.Error("a client that takes nothing is still connected")
		}
		client.Close()
		server.Close()
		synctest.Wait()
	})
}
