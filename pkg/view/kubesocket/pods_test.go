package kubesocket

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// What the author of one pod writes leaves the owners and priorities of all others known.
func TestOneHostilePodHidesNoOther(t *testing.T) {
	t.Parallel()
	link := kubelink.New()
	socket, _ := serve(t, link, -1, 0o700)
	pods := []evictorder.Pod{{UID: "hostile", Owner: strings.Repeat("<", 3<<20) + " ns/x"}, {UID: "other", Owner: "Job ns/j", Priority: 7}}
	if err := NewClient(socket).SetPods(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	if got := link.Pods(); got["other"] != pods[1] || len(got["hostile"].Owner) != 400 {
		t.Errorf("%+.100v", got)
	}
	if len(pods[0].Owner) < 3<<20 {
		t.Error("the caller's list is changed")
	}
}

// put sends a list and returns the answer.
func put(t *testing.T, h http.Handler, list io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, PodsPath, list))
	return w
}

// While a list is read, a second one is refused, so that two never take memory at once.
func TestOneListAtATime(t *testing.T) {
	t.Parallel()
	log, _ := logtest.NewNullLogger()
	link := kubelink.New()
	h := handler(source{}, link, &Options{Log: log})
	list, writer := io.Pipe()
	answered := make(chan int)
	go func() { answered <- put(t, h, list).Code }()
	if _, err := io.WriteString(writer, `[{"uid":"a"}`); err != nil { // returns when it has been read
		t.Fatal(err)
	}
	if w := put(t, h, strings.NewReader(`[{"uid":"b"}]`)); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "another list of pods is being read") {
		t.Errorf("the second list gets %d %s", w.Code, w.Body)
	}
	if _, err := io.WriteString(writer, "]"); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	if code := <-answered; code != http.StatusOK || link.Pods()["a"].UID != "a" {
		t.Errorf("the first list gets %d, and the pods are %v", code, link.Pods())
	}
	if w := put(t, h, strings.NewReader(`[{"uid":"b"}]`)); w.Code != http.StatusOK || link.Pods()["b"].UID != "b" {
		t.Errorf("a later list gets %d, and the pods are %v", w.Code, link.Pods())
	}
}

// Of many connections the socket serves sixteen, and closes the others. When they end, others
// take their place.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	socket, client := serve(t, kubelink.New(), -1, 0o700)
	var open []net.Conn
	for range maxConnections + 10 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	served := 0
	for _, conn := range open {
		_, err := io.WriteString(conn, "GET /v1/stream HTTP/1.1\r\nHost: sluice\r\n\r\n")
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil {
			served++
		}
	}
	if served != maxConnections {
		t.Errorf("of %d connections, %d are served, want %d", len(open), served, maxConnections)
	}
	for _, conn := range open {
		conn.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		response, err := client.Get("http://sluice/v1/stream")
		if err == nil {
			response.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// A list that stays wrong is logged once, and lists that are wrong in many ways once a minute.
func TestWrongListsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, logged := logtest.NewNullLogger()
		link := kubelink.New()
		h := handler(source{}, link, &Options{Log: log})
		put := func(list string) { put(t, h, strings.NewReader(list)) }
		lines := func(want int, last string) {
			t.Helper()
			all := logged.AllEntries()
			if len(all) != want || !strings.Contains(all[len(all)-1].Message, last) {
				t.Fatalf("%d lines, want %d, the last with %q: %v", len(all), want, last, logged.LastEntry())
			}
		}
		for range 100 {
			put(`[{"uid":""},{"uid":"a"}]`)
			time.Sleep(5 * time.Second)
		}
		lines(1, "of 1 pods are left out")
		if len(link.Pods()) != 1 {
			t.Errorf("pods are %v", link.Pods())
		}
		for range 12 { // both within a minute
			put(`{}`)
			put(`[{"uid":"` + strings.Repeat("x", 200) + `"}]`)
			time.Sleep(5 * time.Second)
		}
		lines(2, "those known before stay in force")
		put(`[]`)
		put(`{}`)
		lines(3, "this is no list")
	})
}
