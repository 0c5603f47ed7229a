package predict

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the table in docs/prediction.md, and the picture beside it")

// The table in docs/prediction.md is that of the backtest.
func TestBacktest(t *testing.T) {
	t.Parallel()
	const file, from, to = "../../../docs/prediction.md", "<!-- made by go test ./pkg/decide/predict -update -->\n", "<!-- end -->\n"
	cfg := DefaultConfig()
	var b strings.Builder
	b.WriteString(head)
	for _, c := range courses() {
		results, _ := backtest(&cfg, c.resource, c.days(), testedFrom*dayMinutes, c.request)
		b.WriteString(row(c.name, results))
	}
	b.WriteString("\n")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), from)
	was, after, foundEnd := strings.Cut(rest, to)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the table", file)
	}
	if was == b.String() {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is out of date: go test ./pkg/decide/predict -update\n%s", file, b.String())
	}
	if err := os.WriteFile(file, []byte(before+from+b.String()+to+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

const head = "\n| course | histogram | profile | period | chosen | last hour's peak | request |\n|---|---|---|---|---|---|---|\n"

func row(name string, results [columns]misses) string {
	text := "| " + name + " |"
	for i := range results {
		text += " " + results[i].text() + " |"
	}
	return text + "\n"
}

// Recorded days are tested like made ones: files with a line "2026-01-31 23:55:00,0.5" for each
// measurement, in the folder that SLUICE_TRACES names. Their first half is what the methods know.
func TestRecordedDays(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("SLUICE_TRACES")
	if dir == "" {
		t.Skip("SKIPPED: SLUICE_TRACES names no folder with recorded days")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", dir, err)
	}
	cfg := DefaultConfig()
	cfg.CPU.Scale.Most = 1e12
	var b strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		usage := perMinute(t, string(text))
		results, _ := backtest(&cfg, CPU, usage, len(usage)/2/60*60, slices.Max(usage))
		b.WriteString(row(filepath.Base(file), results))
	}
	t.Log(head + b.String())
}

// perMinute reads a record; each measurement holds until the next.
func perMinute(t *testing.T, text string) (usage []float64) {
	t.Helper()
	var last time.Time
	for line := range strings.Lines(text) {
		at, value, _ := strings.Cut(strings.TrimSpace(line), ",")
		when, err := time.Parse(time.DateTime, at)
		if err != nil { // the head
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		for ; !last.IsZero() && last.Before(when); last = last.Add(time.Minute) {
			usage = append(usage, number)
		}
		last = when
	}
	return usage
}

func (m *misses) text() string {
	n := float64(max(m.hours, 1))
	return fmt.Sprintf("%.0f / %.1f / %.0f", 100*m.over/n, 100*m.under/n, 100*float64(m.tooLow)/n)
}
