package objectives

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// following reads pods until the test ends, 50 times a second.
func following(t *testing.T) (*Reader, func(...Target)) {
	t.Helper()
	r := New()
	r.interval = 20 * time.Millisecond
	return r, func(targets ...Target) { r.Follow(t.Context(), targets) }
}

// targetOf is a pod at that server.
func targetOf(t *testing.T, uid string, server *httptest.Server) Target {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return Target{UID: uid, Address: host, Objective: workload.Objective{
		Metric: "request_seconds", Quantile: 0.9, Bound: 20 * time.Millisecond, Unit: time.Second, Port: number, Path: "/metrics",
	}}
}

func serving(t *testing.T, page http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	return server
}

// await returns the latency of the pod "a" once it is as wanted.
func await(t *testing.T, r *Reader, what string, is func(observe.Latency) bool) observe.Latency {
	t.Helper()
	for range 1000 {
		if l, ok := r.Latest()["a"]; ok && is(l) {
			return l
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never %s: %+v", what, r.Latest())
	return observe.Latency{}
}

// TestReader reads what Prometheus' own library serves.
func TestReader(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "request_seconds", Buckets: []float64{0.01, 0.02, 0.1}}, []string{"code"})
	registry.MustRegister(times)
	times.WithLabelValues("200").Observe(0.005)
	server := serving(t, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	r, follow := following(t)
	one := targetOf(t, "a", server)
	follow(one)
	await(t, r, "read", func(l observe.Latency) bool { return !l.At.IsZero() })
	for range 50 {
		times.WithLabelValues("200").Observe(0.015)
		times.WithLabelValues("500").Observe(0.09)
	}
	got := await(t, r, "slow", func(l observe.Latency) bool { return l.Requests >= 100 })
	if got.Slow != 50 || got.Seconds < 0.08 || got.Seconds > 0.1 || got.Problem != "" {
		t.Errorf("%+v", got)
	}
	one.Objective.Labels[0] = workload.Label{Name: "code", Value: "200"}
	follow(one)
	await(t, r, "read anew", func(l observe.Latency) bool { return !l.At.IsZero() && l.Requests == 0 })
	for range 50 {
		times.WithLabelValues("200").Observe(0.015)
		times.WithLabelValues("500").Observe(0.09)
	}
	if got := await(t, r, "fast", func(l observe.Latency) bool { return l.Requests >= 50 }); got.Slow != 0 || got.Seconds > 0.02 {
		t.Errorf("%+v", got)
	}
	server.Close()
	if got := await(t, r, "gone", func(l observe.Latency) bool { return l.Problem != "" }); got.At.IsZero() || !strings.Contains(got.Problem, "refused") {
		t.Errorf("%+v", got)
	}
	follow()
	if all := r.Latest(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

// TestHostilePages reads pods that do their worst.
func TestHostilePages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page http.HandlerFunc
		want string
	}{
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "Timeout"},
		"slow": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprintln(w, "# slow")
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
		}, "Timeout"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprintln(w, "# endless")
			}
		}, "has over 2097152 bytes"},
		"long line":   {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("x", longestLine+1)) }, "a line of over"},
		"long header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", strings.Repeat("x", 64<<10)) }, "exceeded"},
		"error":       {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, "answers 404"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "the page redirects"},
		"no HTTP":      {func(w http.ResponseWriter, _ *http.Request) { hijack(w, "\x1b[31mhello\n\n") }, "malformed HTTP"},
		"empty":        {func(http.ResponseWriter, *http.Request) {}, "the page has no histogram request_seconds, and no other histogram"},
		"another name": {text("# TYPE request_second histogram\n"), "did you mean request_second?"},
		"no series":    {text("# TYPE request_seconds histogram\n"), "has no buckets yet"},
		"a text":       {text("request_seconds_bucket{le=\"1\"} many\n"), "can't be read"},
		"no count":     {text("request_seconds_bucket{le=\"1\"}\n"), "it has no count"},
		"no end":       {text("request_seconds_bucket{} 1\n"), "its end is"},
		"no brace":     {text("request_seconds_bucket{le=\"1\" 1\n"), "its labels have no end"},
		"no quote":     {text("request_seconds_bucket{le=\"1} 1\n"), "a label's value has no end"},
		"an escape":    {text("request_seconds_bucket{le=\"1\\"), "a label's value has no end"},
		"many buckets": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range mostBuckets + 1 {
				fmt.Fprintf(w, "request_seconds_bucket{le=\"%d\"} 1\n", i)
			}
		}, "over 500 in one series"},
		"NaN":        {text("request_seconds_bucket{le=\"1\"} NaN\nrequest_seconds_bucket{le=\"+Inf\"} NaN\n"), "histogram"},
		"no +Inf":    {text("request_seconds_bucket{le=\"1\"} 1\nrequest_seconds_bucket{le=\"2\"} 1\n"), "must end at +Inf"},
		"falling":    {text("request_seconds_bucket{le=\"1\"} 2\nrequest_seconds_bucket{le=\"+Inf\"} 1\n"), "must end at +Inf"},
		"too coarse": {text("request_seconds_bucket{le=\"0.01\"} 2\nrequest_seconds_bucket{le=\"+Inf\"} 2\n"), "not beyond the bound"},
		"mixed": {text("request_seconds_bucket{a=\"1\",le=\"1\"} 2\nrequest_seconds_bucket{a=\"1\",le=\"+Inf\"} 2\n" +
			"request_seconds_bucket{a=\"2\",le=\"2\"} 2\nrequest_seconds_bucket{a=\"2\",le=\"+Inf\"} 2\n"), "different buckets"},
		"many series": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range mostSeries + 1 {
				fmt.Fprintf(w, "request_seconds_bucket{a=\"%d\",le=\"1\"} 1\n", i)
			}
		}, "choose some by labels"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, follow := following(t)
			follow(targetOf(t, "a", serving(t, c.page)))
			got := await(t, r, "a problem", func(l observe.Latency) bool { return l.Problem != "" })
			if !strings.Contains(got.Problem, c.want) || !got.At.IsZero() || len(got.Problem) > longestError+10 || strings.Contains(got.Problem, "\x1b") {
				t.Errorf("%+v, want %q", got, c.want)
			}
		})
	}
}

func text(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, page) }
}

// TestNothingIsLogged reads a pod that goes on talking after its answer: net/http would log that, 4 KiB at each
// reading. It does not run beside other tests, as the log is the process's.
func TestNothingIsLogged(t *testing.T) {
	var out bytes.Buffer
	log.SetOutput(&out)
	defer log.SetOutput(os.Stderr)
	var talked atomic.Int64
	server := serving(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		time.Sleep(10 * time.Millisecond)
		io.WriteString(conn, strings.Repeat("evil", 1000))
		talked.Add(1)
	}))
	r, follow := following(t)
	follow(targetOf(t, "a", server))
	for talked.Load() < 5 {
		time.Sleep(r.interval)
	}
	follow()
	time.Sleep(2 * r.interval)
	if out.Len() > 0 {
		t.Errorf("%d bytes were logged: %.80s", out.Len(), out.String())
	}
}

func hijack(w http.ResponseWriter, answer string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		io.WriteString(conn, answer)
		conn.Close()
	}
}

// TestFollow checks that a pod is asked only while it is followed, and that a node full of objectives
// reads as many as it can.
func TestFollow(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := serving(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	r, follow := following(t)
	follow(Target{UID: "a", Objective: targetOf(t, "a", server).Objective})
	if got := r.Latest()["a"]; !strings.Contains(got.Problem, "no address") {
		t.Errorf("%+v", got)
	}
	all := make([]Target, mostPods+1)
	for i := range all {
		all[i] = targetOf(t, strconv.Itoa(i), server)
	}
	follow(all...)
	follow(all...)
	if got := r.Latest()[strconv.Itoa(mostPods)]; got.Problem != tooMany {
		t.Errorf("%+v", got)
	}
	last := targetOf(t, "a", server)
	follow(last)
	await(t, r, "read", func(l observe.Latency) bool { return l.Problem != "" && l.Problem != tooMany })
	follow()
	time.Sleep(5 * r.interval)
	before := asked.Load()
	time.Sleep(5 * r.interval)
	if after := asked.Load(); before == 0 || after != before {
		t.Errorf("asked %d times, and %d times after that", before, after-before)
	}
}

// TestCostlyPage reads the page of two MiB that takes longest.
func TestCostlyPage(t *testing.T) {
	var page strings.Builder
	labels := strings.Repeat(`a="",`, 450)
	for i := 0; page.Len() < longestPage-len(labels)-100; i++ {
		fmt.Fprintf(&page, "request_seconds_bucket{%sle=\"%d\"} 1\n", labels, i%400)
	}
	o := workload.Objective{Metric: "request_seconds", Quantile: 0.99, Bound: 20 * time.Millisecond, Unit: time.Second}
	result := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			histogramOf(strings.NewReader(page.String()), &o)
		}
	})
	if result.NsPerOp() > 2*time.Second.Nanoseconds() || result.AllocedBytesPerOp() > 20<<20 {
		t.Errorf("it takes %s and %d bytes", time.Duration(result.NsPerOp()), result.AllocedBytesPerOp())
	}
}

// TestPage reads the forms of lines that the text format has.
func TestPage(t *testing.T) {
	t.Parallel()
	o := workload.Objective{Metric: "seconds", Quantile: 0.99, Bound: 20 * time.Millisecond, Unit: time.Millisecond, Labels: [4]workload.Label{{Name: "path", Value: "a\"}\\\n=,"}}}
	h, err := histogramOf(strings.NewReader(`# HELP seconds_bucket{ not a line of it
other_seconds_bucket{le="1"} 9
seconds_bucket_bucket{le="1"} 9
seconds_bucket{path="b",le="35"} 9
seconds_bucket{path="b",le="+Inf"} 9
seconds_bucket{path="a\"}\\\n=,",le="35"} 2
seconds_bucket{ path = "a\"}\\\n=," , le = "+Inf" , } 3e0 1395066363000 # {trace="x"} 1
`), &o)
	if err != nil || len(h.UpTo) != 2 || h.UpTo[0] != 0.035 || h.Counts[0] != 2 || h.Counts[1] != 3 {
		t.Errorf("%+v, %v", h, err)
	}
}

// Whatever a pod serves is either a histogram or an error.
func FuzzPage(f *testing.F) {
	f.Add("# TYPE request_seconds histogram\nrequest_seconds_bucket{code=\"200\",le=\"0.02\"} 1\nrequest_seconds_bucket{code=\"200\",le=\"+Inf\"} 2 1395066363000\n")
	f.Add("request_seconds_bucket{le=\"1e-3\"} 1e300\nrequest_seconds_bucket{le=\"+Inf\"} +Inf # {trace=\"a\"} 1\n")
	f.Add("request_seconds_bucket{\"le\"=\"\\\"\"} 0x1\r\nrequest_seconds_bucket{le=\"NaN\",le=\"1\"} -1\n")
	f.Fuzz(func(t *testing.T, page string) {
		o := workload.Objective{Metric: "request_seconds", Quantile: 0.99, Bound: 20 * time.Millisecond, Unit: time.Millisecond}
		h, err := histogramOf(strings.NewReader(page), &o)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatal("an error without a reason")
			}
			return
		}
		var m observe.LatencyMeter
		m.Add(time.Unix(1, 0), h)
		m.Add(time.Unix(2, 0), h)
		if l := m.Latency(o.Quantile, o.Bound.Seconds()); l.Requests != 0 || l.Seconds != 0 || l.Slow != 0 {
			t.Fatalf("%+v from %+v", l, h)
		}
	})
}
