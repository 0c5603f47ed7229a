package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func example() *Report {
	const ms = time.Millisecond
	r := &Report{
		Cells: []Cell{
			{Level: "30", Setting: Alone, Slices: 1, P50: ms, P99: 2 * ms, P999: 3 * ms, Busy: 0.4},
			{Level: "30", Setting: Again, P50: ms, P99: 2200 * time.Microsecond, P999: 3 * ms, Busy: 0.4},
			{Level: "30", Hog: "cpu", Setting: Unmanaged, P50: 2 * ms, P99: 8 * ms, P999: 13 * ms, Busy: 1, Work: 70},
			{Level: "30", Hog: "cpu", Setting: Sluice, Requests: 1000, P50: ms, P99: 2410 * time.Microsecond, P999: 8 * ms, Busy: 0.95, Work: 54, Waits: []Wait{{"batch", 30 * time.Microsecond, 4 * ms}}},
			{Level: "30", Hog: "memory", Setting: Sluice},
			{Level: "0", Hog: "cpu", Setting: HogAlone, Busy: 1, Work: 100},
		},
		Memory: []Memory{
			{Setting: Alone, P99: 2 * ms}, {Setting: Again, P99: 2 * ms},
			{Setting: Sluice, Holds: "anonymous", P99: 2 * ms, Reclaiming: Spread{High: ms}},
		},
		Reactions:  []Reaction{{Setting: Sluice, Steps: 100, P99: 299 * ms}, {Setting: SlowLoop, P99: 900 * ms}},
		Objectives: []Objective{{Cell: Cell{Level: "50", Setting: "threshold 80", P99: 30 * ms}, Bound: 20 * ms, Time: time.Minute, Windows: 8, Held: 3}},
	}
	r.Leavings()
	return r
}

func TestGoals(t *testing.T) {
	t.Parallel()
	var got []string
	for _, g := range example().Goals() {
		verdict := "missed "
		if g.Reached {
			verdict = "reached "
		}
		got = append(got, verdict+g.Of+": "+g.Text)
	}
	want := []string{
		"missed load 30, cpu: p99 2.41 ms, bound 2.40 ms (1.05 × 2.10 ms alone + 0.20 ms A/A), node 95 % busy (over 90)",
		"reached load 30, cpu: p99.9 8.00 ms, unmanaged 13.00 ms, alone 3.00 ms: 50 % of the excess removed (50)",
		"reached load 30, cpu: batch did 90 % of what it does on what the service leaves (90)",
		"missed load 30, memory: no slice was quiet enough to count",
		"missed memory, anonymous: the service waited 1.00 ms for memory in the worst of 0 growths (0), 0 kills of it (0)",
		"reached memory, anonymous: p99 2.00 ms, bound 2.10 ms (1.05 × 2.00 ms alone + 0.00 ms A/A)",
		"reached reaction: p99 299.00 ms (under 300ms), 0 of 100 steps without a squeeze",
	}
	if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("goals are\n%s\nwant\n%s", a, b)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	table := example().Table()
	for _, want := range []string{"of leavings", "anonymous", "reached", "MISSED", "90.0", "below 20.00 ms", "37.5", "per request"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table has no %q:\n%s", want, table)
		}
	}
}

func TestPlot(t *testing.T) {
	t.Parallel()
	for _, r := range []*Report{example(), {}} {
		plot := r.Plot()
		for d := xml.NewDecoder(strings.NewReader(plot)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, plot)
			}
		}
		if strings.Contains(plot, "NaN") || strings.Contains(plot, "Inf") {
			t.Errorf("numbers are missing:\n%s", plot)
		}
	}
}

func TestBars(t *testing.T) {
	t.Parallel()
	got := example().Bars("30", "cpu")
	want := `The service answered within this time; shorter is better:

  half of the requests (p50)
    alone     ██████████████████████ 1.00 ms
    unmanaged ████████████████████████████████████████████ 2.00 ms
    Sluice    ██████████████████████ 1.00 ms

  99 of 100 requests (p99)
    alone     ███████████ 2.00 ms
    unmanaged ████████████████████████████████████████████ 8.00 ms
    Sluice    █████████████▎ 2.41 ms

  999 of 1000 requests (p99.9)
    alone     ██████████▏ 3.00 ms
    unmanaged ████████████████████████████████████████████ 13.0 ms
    Sluice    ███████████████████████████▏ 8.00 ms

Batch work did this much; longer is better:

    alone     ████████████████████████████████████████████ 100 %, without requests to the service
    unmanaged ██████████████████████████████▊ 70 %
    Sluice    ███████████████████████▊ 54 %
`
	if got != want {
		t.Errorf("the bars are\n%s\nwant\n%s", got, want)
	}
	if got := (&Report{}).Bars("30", "cpu"); strings.Contains(got, "NaN") || strings.Contains(got, "Batch") {
		t.Errorf("of nothing:\n%s", got)
	}
}
