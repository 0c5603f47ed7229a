package metrics

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

var update = flag.Bool("update", false, "write golden files and the tables of docs/metrics.md")

func gather(t testing.TB, s *status.Status, names bool) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(New(fixed{s: s}, names))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// listing returns the table as text: each name with type, labels and help.
func listing() string {
	var b strings.Builder
	for _, s := range sections() {
		fmt.Fprintf(&b, "# %s\n", s.title)
		for _, m := range s.metrics {
			fmt.Fprintf(&b, "%s %s {%s} %s\n", m.name, m.kind, strings.Join(m.labels, ","), m.help)
		}
	}
	return b.String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not current: names are a promise to dashboards; if the change is meant, run go test ./pkg/view/metrics -update", file)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/metrics.txt", listing())
}

// The metrics of a full status are those of the table, with type, help and labels.
func TestExpositionIsTheTable(t *testing.T) {
	t.Parallel()
	families := gather(t, full(), true)
	for _, s := range sections() {
		for _, m := range s.metrics {
			f := families[m.name]
			delete(families, m.name)
			if f == nil {
				t.Errorf("a full status has no %s", m.name)
				continue
			}
			if kind := strings.ToLower(f.GetType().String()); kind != m.kind.String() || f.GetHelp() != m.help {
				t.Errorf("%s is a %s: %s", m.name, kind, f.GetHelp())
			}
			for _, sample := range f.GetMetric() {
				var labels []string
				for _, l := range sample.GetLabel() {
					labels = append(labels, l.GetName())
				}
				if !slices.Equal(labels, slices.Sorted(slices.Values(m.labels))) {
					t.Errorf("%s has labels %s, the table %s", m.name, labels, m.labels)
				}
			}
		}
	}
	for name := range families {
		t.Errorf("%s is not in the table", name)
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	problems, err := testutil.CollectAndLint(New(fixed{s: full()}, true))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// sample returns one value of a family by its labels, for example "evicted" or "shop,db-0,main".
func sample(families map[string]*dto.MetricFamily, name, labels string) (float64, bool) {
	f := families[name]
	for _, m := range f.GetMetric() {
		var values []string
		for _, l := range m.GetLabel() {
			values = append(values, l.GetValue())
		}
		if strings.Join(values, ",") == labels {
			return cmp.Or(m.GetGauge().GetValue(), m.GetCounter().GetValue()), true
		}
	}
	return 0, false
}

func TestValues(t *testing.T) {
	t.Parallel()
	families := gather(t, full(), true)
	for _, want := range []struct {
		name, labels string // label values in the order of the labels' names
		value        float64
	}{
		{"sluice_interference_worst_ratio", "cpu", 0.12},
		{"sluice_interference_mean_ratio", "throttled", 0.25},
		{"sluice_interference_calm_ratio", "cpu", 0.03},
		{"sluice_interference_suffering_pods", "cpu", 1},
		{"sluice_interference_suffering_pods", "io", 0},
		{"sluice_interference_learned_pods", "", 1},
		{"sluice_batch_cpu_seconds_total", "", 360000},
		{"sluice_batch_memory_byte_seconds_total", "", 2 * (1 << 30) * 3600},
		{"sluice_node_utilization_day_ratio", "", 0.61},
		{"sluice_batch_satisfaction_ratio", "", 0.93},
		{"sluice_batch_sellable_cpus", "long", 3.5},
		{"sluice_pinnable_cpus", "1", 4},
		{"sluice_pool_cpus", "online", 9},
		{"sluice_pool_band_high_ratio", "online", 0.6},
		{"sluice_class_containers", "LS", 2},
		{"sluice_class_containers", "LSE", 0},
		{"sluice_class_raised_containers", "LS", 1},
		{"sluice_class_lowered_containers", "BE", 1},
		{"sluice_class_worst_pressure_ratio", "LS,memory", 0.1},
		{"sluice_batch_state", "squeezed", 1},
		{"sluice_batch_state", "open", 0},
		{"sluice_batch_budget_cpus", "", 3},
		{"sluice_machine_cpus", "pinned", 2},
		{"sluice_decisions_total", "squeeze,,windows,on", 3},
		{"sluice_decisions_total", "demote,online,demotion,on", 5},
		{"sluice_decisions_total", "evict,node-memory,eviction,on", 3},
		{"sluice_evictions_total", "evicted", 3},
		{"sluice_controller_mode", "memory,preview", 1},
		{"sluice_knob_errors_total", "EINVAL,cpu.quota", 7},
		{"sluice_unset_settings", "cpu.burst", 3},
		{"sluice_feature_supported", "cpu.idle", 0},
		{"sluice_config_info", "0123456789ab", 1},
		{"sluice_container_drift_repairs_total", "main,shop,db-0", 3},
		{"sluice_container_loop_limit_cpus", "main,shop,db-0", 6},
		{"sluice_pod_excess_ratio", "throttled,shop,web-0", 0.5},
	} {
		if got, ok := sample(families, want.name, want.labels); !ok || math.Abs(got-want.value) > 1e-9*want.value {
			t.Errorf("%s{%s} is %v (there: %v), want %v", want.name, want.labels, got, ok, want.value)
		}
	}
	if _, there := sample(families, "sluice_feature_supported", "io.cost"); there {
		t.Error("what could not be found out is told")
	}
	h := families["sluice_handler_duration_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 100 || h.GetSampleSum() != 3 || h.GetBucket()[1].GetCumulativeCount() != 90 || h.GetBucket()[2].GetCumulativeCount() != 99 {
		t.Errorf("%v", h)
	}
}

// Without names, no label identifies a pod, and the number of series does not depend on the number
// of containers.
func TestCardinality(t *testing.T) {
	t.Parallel()
	series := func(n int, names bool) int {
		count := 0
		for _, f := range gather(t, busy(n), names) {
			count += len(f.GetMetric())
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if !names && strings.Contains(l.GetValue(), "pod-") {
						t.Errorf("%s tells of %s", f.GetName(), l.GetValue())
					}
				}
			}
		}
		return count
	}
	if few, many := series(1, false), series(500, false); few != many || few > 300 {
		t.Errorf("%d series with one container, %d with 500", few, many)
	}
	each := (series(500, true) - series(500, false)) / 500
	if each < 10 || each > 25 {
		t.Errorf("%d series for each container", each)
	}
}

// An unknown value has no sample, in particular none of 0.
func TestUnknown(t *testing.T) {
	t.Parallel()
	s := &status.Status{Pools: []status.Pool{{Name: "online", Load: &status.PoolLoad{}}}, Containers: []status.Container{{Ref: "a/b/c", Class: workload.LS}}}
	absent := func(names ...string) {
		t.Helper()
		families := gather(t, s, true)
		for _, name := range names {
			if families[name] != nil {
				t.Errorf("%s is told", name)
			}
		}
	}
	absent("sluice_pool_load_ratio", "sluice_class_used_cpus", "sluice_loop_last_look_timestamp_seconds", "sluice_node_used_cpus", "sluice_start_time_seconds", "sluice_runtime_info", "sluice_container_used_cpus")
	s.Loop = &status.Loop{Problem: "no"}
	absent("sluice_batch_satisfaction_ratio", "sluice_loop_last_look_timestamp_seconds", "sluice_evictions_total")
	s.Loop = &status.Loop{MeasuredAt: now(), Batch: status.Batch{Unlimited: true, Known: true, Budget: 16000}}
	absent("sluice_batch_satisfaction_ratio", "sluice_node_utilization_day_ratio", "sluice_batch_sellable_cpus", "sluice_batch_budget_cpus", "sluice_node_used_cpus", "sluice_node_pressure_ratio",
		"sluice_interference_worst_ratio", "sluice_batch_memory_limit_bytes")
}

func TestNamesAreHarmless(t *testing.T) {
	t.Parallel()
	s := full()
	long := strings.Repeat("x", 10_000)
	s.Containers = append(s.Containers, s.Containers[0], status.Container{Ref: "\xff/a\nb\"\\/{}"}, status.Container{Ref: "alone"}, status.Container{Ref: long + "/" + long + "/" + long}, status.Container{})
	s.Loop.Disturbed = append(s.Loop.Disturbed, s.Loop.Disturbed[0], control.Disturbance{Ref: "\xc3/\u202e"})
	families := gather(t, s, true)
	for _, m := range families["sluice_container_info"].GetMetric() {
		for _, l := range m.GetLabel() {
			if len(l.GetValue()) > longest+len("\uFFFD") {
				t.Errorf("label %s is %d bytes long", l.GetName(), len(l.GetValue()))
			}
		}
	}
	if n := len(families["sluice_container_info"].GetMetric()); n != 7 {
		t.Errorf("%d containers are named, want each name once: 7", n)
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": "text/plain; version=0.0.4",
		"application/openmetrics-text;version=1.0.0,text/plain;q=0.5": "application/openmetrics-text; version=1.0.0",
	} {
		request := httptest.NewRequest(http.MethodGet, Path, nil)
		request.Header.Set("Accept", accept)
		answer := httptest.NewRecorder()
		Handler(fixed{s: full()}, false).ServeHTTP(answer, request)
		body := answer.Body.String()
		if got := answer.Header().Get("Content-Type"); answer.Code != http.StatusOK || !strings.HasPrefix(got, want) {
			t.Errorf("%d %s, want %s", answer.Code, got, want)
		}
		if !strings.Contains(body, "\nsluice_build_info{") || !strings.Contains(body, "\nprocess_cpu_seconds_total ") || strings.HasSuffix(body, "# EOF\n") != (accept != "") {
			t.Errorf("accepting %q:\n%s", accept, body)
		}
	}
}

// If the plugin doesn't answer, the scrape fails, so that `up` is 0.
func TestNoStatus(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	Handler(fixed{err: errors.New("it is stopping")}, false).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, Path, nil))
	if body, _ := io.ReadAll(answer.Body); answer.Code != http.StatusInternalServerError || !strings.Contains(string(body), "no status of the plugin: it is stopping") {
		t.Errorf("%d %s", answer.Code, body)
	}
}
