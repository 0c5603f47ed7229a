package report

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// barWidth is the length of the longest bar in columns.
const barWidth = 44

// bar is one line of a bar chart.
type bar struct {
	label string
	value float64
	text  string
}

// Bars draws, for a terminal, the service's latencies and batch work's throughput at one load
// beside one kind of hog: a group of bars for each figure, with a bar for each measured setting.
// Each group has its own scale.
func (r *Report) Bars(level, hog string) string {
	labels := []struct{ setting, hog, label string }{
		{Alone, "", "alone"},
		{Unmanaged, hog, "unmanaged"},
		{Kubernetes, hog, "Kubernetes"},
		{Sluice, hog, "Sluice"},
	}
	groups := []struct {
		title string
		of    func(Cell) time.Duration
	}{
		{"half of the requests (p50)", func(c Cell) time.Duration { return c.P50 }},
		{"99 of 100 requests (p99)", func(c Cell) time.Duration { return c.P99 }},
		{"999 of 1000 requests (p99.9)", func(c Cell) time.Duration { return c.P999 }},
	}
	var out strings.Builder
	out.WriteString("The service answered within this time; shorter is better:\n")
	for _, g := range groups {
		var bars []bar
		for _, l := range labels {
			if c, ok := r.Find(level, l.hog, l.setting); ok {
				d := g.of(c)
				bars = append(bars, bar{l.label, float64(d), figure(d)})
			}
		}
		fmt.Fprintf(&out, "\n  %s\n%s", g.title, draw(bars))
	}

	whole, ok := r.Find("0", hog, HogAlone)
	if !ok || whole.Work == 0 {
		return out.String()
	}
	bars := []bar{{"alone", 1, "100 %, without requests to the service"}}
	for _, l := range labels[1:] {
		if c, ok := r.Find(level, l.hog, l.setting); ok {
			share := c.Work / whole.Work
			bars = append(bars, bar{l.label, share, fmt.Sprintf("%.0f %%", 100*share)})
		}
	}
	fmt.Fprintf(&out, "\nBatch work did this much; longer is better:\n\n%s", draw(bars))
	return out.String()
}

// figure formats a latency with its significant digits.
func figure(d time.Duration) string {
	milliseconds := float64(d) / float64(time.Millisecond)
	switch {
	case milliseconds >= 100:
		return fmt.Sprintf("%.0f ms", milliseconds)
	case milliseconds >= 10:
		return fmt.Sprintf("%.1f ms", milliseconds)
	}
	return fmt.Sprintf("%.2f ms", milliseconds)
}

// draw draws each bar as a line. A value that isn't zero has at least an eighth of a column.
func draw(bars []bar) string {
	var most float64
	var widest int
	for _, b := range bars {
		most = max(most, b.value)
		widest = max(widest, utf8.RuneCountInString(b.label))
	}
	var out strings.Builder
	for _, b := range bars {
		eighths := 0
		if b.value > 0 {
			eighths = max(1, int(b.value/most*barWidth*8+0.5))
		}
		filled := strings.Repeat("█", eighths/8)
		if rest := eighths % 8; rest > 0 {
			filled += string([]rune("▏▎▍▌▋▊▉")[rest-1])
		}
		fmt.Fprintf(&out, "    %-*s %s %s\n", widest, b.label, filled, b.text)
	}
	return out.String()
}
