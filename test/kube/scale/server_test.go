package scale

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/kube/bed"
)

// server is the API server as its metrics show it.
type server struct{ client kubernetes.Interface }

func newServer(t testing.TB, c *bed.Cluster) server { return server{c.Client(t)} }

// sample is the state of the API server's counters at a time.
type sample struct {
	at       time.Time
	requests map[string]float64 // by verb, resource and, if it is an error, code
	patches  float64            // of nodes' status, also those that failed
	patch    float64            // seconds that these took
	refused  float64            // requests that priority and fairness has refused
	watches  float64            // of nodes and pods, that run
	cpu      float64            // seconds
	resident float64            // bytes
}

const publication = "APPLY nodes/status"

func (s server) sample(ctx context.Context) (*sample, error) {
	text, err := s.client.Discovery().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the API server's metrics: %w", err)
	}
	is := &sample{at: time.Now(), requests: map[string]float64{}}
	for _, m := range all["apiserver_request_total"].GetMetric() {
		key := request(m)
		if code := label(m, "code"); code >= "400" {
			key += " " + code
		}
		is.requests[key] += m.GetCounter().GetValue()
	}
	for _, m := range all["apiserver_request_duration_seconds"].GetMetric() {
		if request(m) == publication {
			is.patch += m.GetHistogram().GetSampleSum()
			is.patches += float64(m.GetHistogram().GetSampleCount())
		}
	}
	for _, m := range all["apiserver_flowcontrol_rejected_requests_total"].GetMetric() {
		is.refused += m.GetCounter().GetValue()
	}
	for _, m := range all["apiserver_longrunning_requests"].GetMetric() {
		if what := request(m); what == "WATCH nodes" || what == "WATCH pods" {
			is.watches += m.GetGauge().GetValue()
		}
	}
	for _, m := range all["process_cpu_seconds_total"].GetMetric() {
		is.cpu = m.GetCounter().GetValue()
	}
	for _, m := range all["process_resident_memory_bytes"].GetMetric() {
		is.resident = m.GetGauge().GetValue()
	}
	return is, nil
}

// request is the verb and the resource of a metric, as "WATCH pods".
func request(m *dto.Metric) string {
	what := label(m, "verb") + " " + label(m, "resource")
	if sub := label(m, "subresource"); sub != "" {
		what += "/" + sub
	}
	return what
}

func label(m *dto.Metric, name string) string {
	i := slices.IndexFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name })
	if i < 0 {
		return ""
	}
	return m.GetLabel()[i].GetValue()
}

// since tells what the API server did from one sample to a later one of the same process: what sluice-kube asks for, its
// load and its memory.
func (s *sample) since(was *sample) string {
	length := s.at.Sub(was.at)
	var asked []string
	for _, what := range slices.Sorted(maps.Keys(s.requests)) {
		count := s.requests[what] - was.requests[what]
		_, target, _ := strings.Cut(what, " ")
		target, _, _ = strings.Cut(target, " ")
		if count > 0 && slices.Contains([]string{"nodes", "nodes/status", "pods", "events"}, target) {
			asked = append(asked, fmt.Sprintf("%.0f %s", count, what))
		}
	}
	text := fmt.Sprintf("%s in %v", strings.Join(asked, ", "), length.Round(100*time.Millisecond))
	if n := s.patches - was.patches; n > 0 {
		text += fmt.Sprintf("; %.1f patches a second of %.0f ms each", n/length.Seconds(), 1000*(s.patch-was.patch)/n)
	}
	return text + fmt.Sprintf("; %.0f watches, %.0f refused; %.1f %% of a CPU, %.0f MiB", s.watches, s.refused-was.refused, 100*(s.cpu-was.cpu)/length.Seconds(), s.resident/(1<<20))
}
