package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/bench/mix/report"
	"github.com/sluice-dev/sluice/test/runtime"
)

// briefly measures with slices too short for any conclusion, and returns the report.
func briefly(t *testing.T, out string, flags ...string) (r report.Report) {
	t.Helper()
	o, err := parse(append([]string{
		"-sluice", "../../../bin/sluice", "-out", out, "-repeat", "1", "-slice", "300ms", "-settle", "200ms", "-other", "2", "-late", "1s", "-steal", "1", "-pace", "1",
	}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	o.progress, o.unseen = t.Logf, true
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSmoke runs every part on real containers, with slices too short for any conclusion, to test
// the harness. `make e2e` runs it.
func TestSmoke(t *testing.T) {
	if err := runtime.Unavailable(runtime.Options{}); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); err != nil {
		t.Skipf("SKIPPED: the benchmark names files of cgroup v1: %v", err)
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	traces := strings.Contains(string(filesystems), "tracefs")
	out := filepath.Join(t.TempDir(), "mix")
	r := briefly(t, out,
		"-trace="+strconv.FormatBool(traces), "-levels", "10-60", "-hogs", "cpu,cache", "-settings", "alone,alone again,sluice,idle-box",
		"-memory-repeat", "1", "-grow-time", "2500ms", "-steps", "2", "-slow-steps", "1",
		"-parts", "mix,memory,reaction,morning,objective", "-morning", "6s", "-morning-memory", "1", "-objective-time", "600ms")
	for _, c := range r.Cells {
		// On a busy machine, batch work beside the service may get nothing in so short a time.
		if c.Slices != 1 || c.Setting != report.HogAlone && c.Requests == 0 || c.Setting == report.HogAlone && c.Work == 0 {
			t.Errorf("load %s, hog %q, %s: nothing was measured: %+v", c.Level, c.Hog, c.Setting, c)
		}
		if traces && c.Requests > 0 && len(c.Waits) == 0 {
			t.Errorf("load %s, hog %q, %s: the service never waited for a CPU, by the trace", c.Level, c.Hog, c.Setting)
		}
	}
	for _, m := range r.Mornings {
		if len(m.Phases) != 4 || m.Phases[3].P99 == 0 {
			t.Errorf("a morning with prediction.mode %s: nothing was measured: %+v", m.Prediction, m)
		}
	}
	// The rise is less than ten minutes away: where the offer counts with it, less is sold. A busy node sells nothing.
	if m := r.Mornings; len(m) == 2 && (m[0].Started == 0 && m[0].Phases[1].Published >= 2*float64(jobCPU)/1000 || m[1].Started > m[0].Started) {
		t.Errorf("%d jobs started without a forecast, and %d with it", m[0].Started, m[1].Started)
	}
	for _, n := range r.Objectives {
		if n.Windows != 1 || n.Requests == 0 {
			t.Errorf("%s: nothing was measured: %+v", n.Setting, n)
		}
	}
	if len(r.Objectives) != 5 || len(r.Mornings) != 2 || len(r.Cells) == 0 || len(r.Memory) == 0 || len(r.Reactions) != 2 {
		t.Errorf("%d cells, %d of memory, %d reactions, %d mornings, %d of objectives", len(r.Cells), len(r.Memory), len(r.Reactions), len(r.Mornings), len(r.Objectives))
	}
	if plot, err := os.ReadFile(out + ".svg"); err != nil || !strings.Contains(string(plot), "</svg>") {
		t.Errorf("no plot: %v", err)
	}
}

// TestServers runs the comparison with each real server, with slices too short for any conclusion.
// `make e2e` runs it.
func TestServers(t *testing.T) {
	if err := runtime.Unavailable(runtime.Options{}); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for _, s := range servers() {
		t.Run(s.name, func(t *testing.T) {
			r := briefly(t, filepath.Join(t.TempDir(), "mix"), "-service", s.name, "-servers", "../../../bin/tools/servers",
				"-parts", "mix", "-levels", "10", "-hogs", "fork,disk", "-settings", "alone,sluice")
			if r.Run.Service != s.name || r.Run.Work <= 0 || len(r.Cells) != 5 {
				t.Errorf("%s, requests of %v, %d cells", r.Run.Service, r.Run.Work, len(r.Cells))
			}
			for _, c := range r.Cells {
				if c.Setting != report.HogAlone && (c.Requests == 0 || c.P50 == 0) || c.Setting == report.HogAlone && c.Work == 0 {
					t.Errorf("load %s, hog %q, %s: nothing was measured: %+v", c.Level, c.Hog, c.Setting, c)
				}
			}
		})
	}
}

func TestParseService(t *testing.T) {
	t.Parallel()
	for _, wrong := range []struct{ args, want string }{
		{"-service apache -parts mix", "not one of probe, nginx, redis"},
		{"-service nginx", "only for -parts mix"},
		{"-service redis -parts mix -levels 90", "redis uses one CPU at most"},
	} {
		if _, err := parse(strings.Fields(wrong.args)); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v, want %q", wrong.args, err, wrong.want)
		}
	}
}

func TestSettingOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "calm.yaml")
	if _, err := settings([]string{file}, ""); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := os.WriteFile(file, []byte("control: {mode: on}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := settings([]string{"alone", file}, ""); err != nil || len(got) != 2 || got[1].name != "calm" || got[1].hog != batchPods {
		t.Errorf("%+v, %v", got, err)
	}
}

// idling is a cgroup whose weight is reset when cpu.idle becomes 0, as the kernel does.
type idling map[string]string

func (c idling) File(name string) (string, error) {
	text, found := c[name]
	if !found {
		return "", os.ErrNotExist
	}
	return text, nil
}

func (c idling) WriteFile(name, text string) error {
	if c[name] = text; name == "cpu.idle" && text == "0" {
		for file, usual := range map[string]string{"cpu.shares": "1024", "cpu.weight": "100"} {
			if _, found := c[file]; found {
				c[file] = usual
			}
		}
	}
	return nil
}

func TestIdleIsTakenBackWithItsWeight(t *testing.T) {
	t.Parallel()
	for file, usual := range map[string]string{"cpu.shares": "2", "cpu.weight": "1"} {
		c := idling{"cpu.idle": "0", file: usual}
		undo, err := apply([]write{{c, "cpu.idle", "1"}})
		if err != nil || c["cpu.idle"] != "1" {
			t.Fatalf("%v, %v", c, err)
		}
		if err := undo(); err != nil || c["cpu.idle"] != "0" || c[file] != usual {
			t.Errorf("%v, %v", c, err)
		}
	}
}

// TestSharesOf gives cgroup v2 the weights that the kubelet gives it.
func TestSharesOf(t *testing.T) {
	t.Parallel()
	for shares, weight := range map[int]string{2: "1", 1024: "39", 262144: "10000"} {
		if w := sharesOf(idling{"cpu.weight": ""}, shares); w.file != "cpu.weight" || w.text != weight {
			t.Errorf("%d shares: %s %s, want a weight of %s", shares, w.file, w.text, weight)
		}
	}
}

// TestDemo runs the demo on real containers, with slices too short for any conclusion, until its
// page has answered and the input ends. `make e2e` runs it.
func TestDemo(t *testing.T) {
	if err := runtime.Unavailable(runtime.Options{}); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	o, err := parse([]string{"-demo", "-sluice", "../../../bin/sluice", "-slice", "2s", "-settle", "500ms"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := demo(t.Context(), o, &out, strings.NewReader("")); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{
		"Watch this node meanwhile: http://127.0.0.1:", "(p50)", "(p99)", "(p99.9)", "Batch work did this much",
		"  alone ", "  Kubernetes ", "  Sluice ", "which is noisy", "until you press Enter",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo doesn't say %q:\n%s", want, out.String())
		}
	}
}

func TestWindows(t *testing.T) {
	t.Parallel()
	due := []time.Duration{time.Second, 3 * time.Second, 4 * time.Second, 7 * time.Second, 12 * time.Second, 19 * time.Second}
	latency := []time.Duration{100, 5, 4, 3, 2, 1}
	// The windows begin at 2, 7, 12 and 17 s.
	if got, want := windows(due, latency, 2*time.Second), []time.Duration{5, 3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDemand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]demand{"30": {30, 30}, "10-60": {10, 60}, "0": {}} {
		if got, err := parseDemand(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s is read as %v (%v), want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "60-10", "95", "x"} {
		if got, err := parseDemand(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestFirstBelow(t *testing.T) {
	t.Parallel()
	seen := []grant{{at: 0, cpus: 2}, {at: 10, cpus: 1.8}, {at: 20, cpus: 1}, {at: 30, cpus: 0.5}}
	for _, c := range []struct {
		from, to int64
		by       float64
		want     int64
	}{
		{5, 40, 0.25, 20},  // 1.8 is not enough below 2
		{15, 40, 0.25, 20}, // measured from 1.8
		{15, 40, 1, 30},
		{15, 25, 1, 0}, // too late
		{35, 40, 0.25, 0},
	} {
		if got, _ := firstBelow(seen, c.from, c.to, c.by); got != c.want {
			t.Errorf("from %d to %d by %v: %d, want %d", c.from, c.to, c.by, got, c.want)
		}
	}
}
