package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// These are the sizes of the plot in pixels.
const (
	rowHeight   = 16
	labelWidth  = 240
	plotWidth   = 560
	batchWidth  = 160
	groupHeader = 24
	margin      = 20
)

// Plot returns an SVG. For each load and hog it has a line for each setting, from its p50 over its
// p99 to its p99.9 on a logarithmic scale in milliseconds, and a bar for what batch work got.
func (r *Report) Plot() string {
	scale := newScale(r.Cells)
	var body strings.Builder
	y := 2 * margin
	for _, g := range groups(r.Cells) {
		y += groupHeader
		fmt.Fprintf(&body, `<text x="%d" y="%d" font-weight="bold">load %s %%, %s</text>`+"\n", margin, y-6, html.EscapeString(g.level), html.EscapeString(g.hog))
		for _, c := range g.cells {
			line(&body, scale, c, y)
			y += rowHeight
		}
	}
	var out strings.Builder
	width, height := labelWidth+plotWidth+batchWidth+3*margin, y+2*margin
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for _, tick := range scale.ticks() {
		x := scale.x(tick)
		fmt.Fprintf(&out, `<path d="M%.1f %d V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s ms</text>`+"\n", x, 2*margin, y, x, 2*margin-6, text(tick))
	}
	left := labelWidth + plotWidth + 2*margin
	fmt.Fprintf(&out, `<text x="%d" y="%d">batch, of what the service leaves</text>`+"\n", left-margin, margin-6)
	fmt.Fprintf(&out, `<text x="%d" y="%d">latency: ○ p50  ● p99  | p99.9</text>`+"\n", margin, margin-6)
	out.WriteString(body.String())
	out.WriteString("</svg>\n")
	return out.String()
}

// group holds the cells of one load beside one hog, and those of the service alone.
type group struct {
	level, hog string
	cells      []Cell
}

func groups(cells []Cell) []group {
	var all []group
	for _, c := range cells {
		if c.Hog == "" || c.Setting == HogAlone || slices.ContainsFunc(all, func(g group) bool { return g.level == c.Level && g.hog == c.Hog }) {
			continue
		}
		g := group{level: c.Level, hog: c.Hog}
		for _, other := range cells {
			if other.Level == c.Level && (other.Hog == c.Hog || other.Hog == "") {
				g.cells = append(g.cells, other)
			}
		}
		all = append(all, g)
	}
	return all
}

func line(out *strings.Builder, s scale, c Cell, y int) {
	middle := float64(y) + rowHeight/2
	color := "#888"
	switch c.Setting {
	case Sluice:
		color = "#1565c0"
	case Unmanaged:
		color = "#c62828"
	case Kubernetes:
		color = "#ef6c00"
	}
	fmt.Fprintf(out, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`, labelWidth-8, middle+4, html.EscapeString(c.Setting))
	fmt.Fprintf(out, `<path d="M%.1f %.1f H%.1f m0 -5 v10" stroke="%s" fill="none"/>`, s.x(c.P50), middle, s.x(c.P999), color)
	fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="3" stroke="%s" fill="white"/>`, s.x(c.P50), middle, color)
	fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, s.x(c.P99), middle, color)
	if c.BatchOfLeavings > 0 {
		left := labelWidth + plotWidth + 2*margin
		fmt.Fprintf(out, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, left, y+3, min(c.BatchOfLeavings, 1.5)*100, rowHeight-6, color)
		fmt.Fprintf(out, `<text x="%.1f" y="%.1f">%.0f %%</text>`, float64(left)+min(c.BatchOfLeavings, 1.5)*100+4, middle+4, 100*c.BatchOfLeavings)
	}
	out.WriteByte('\n')
}

// scale is logarithmic, over whole powers of two of a millisecond.
type scale struct{ low, high float64 }

func newScale(cells []Cell) scale {
	s := scale{low: 0, high: 1}
	for _, c := range cells {
		if c.P50 > 0 {
			s.low = min(s.low, math.Floor(exponent(c.P50)))
			s.high = max(s.high, math.Ceil(exponent(c.P999)))
		}
	}
	return s
}

func exponent(d time.Duration) float64 { return math.Log2(float64(d) / float64(time.Millisecond)) }

func (s scale) x(d time.Duration) float64 {
	at := s.low
	if d > 0 {
		at = exponent(d)
	}
	return labelWidth + plotWidth*(at-s.low)/(s.high-s.low)
}

func (s scale) ticks() []time.Duration {
	var all []time.Duration
	for e := s.low; e <= s.high; e++ {
		all = append(all, time.Duration(math.Exp2(e)*float64(time.Millisecond)))
	}
	return all
}
