package sim

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// These are the drawing's measures in its own units.
const (
	svgWidth    = 960.0
	svgLeft     = 48.0
	svgRight    = 16.0
	panelTop    = 30.0 // height of the panel's title
	panelHeight = 180.0
	lateHeight  = 6.0
	panelBottom = 34.0 // height of the axis
	legendTop   = 30.0
)

// svgStyle follows the reader's light or dark setting. Colours belong to classes rather than
// variables, because viewers other than browsers don't support those (librsvg, Inkscape).
const svgStyle = `text{font:12px system-ui,sans-serif;fill:#1f2328}
.title{font-weight:600}.faint{fill:#656d76}.paper{fill:#fff}
.grid{stroke:#d8dee4;stroke-width:1}
.key{fill:currentColor}.size{fill:currentColor;fill-opacity:.28}.band{fill:currentColor;fill-opacity:.25}
.area{fill:currentColor;fill-opacity:.75}.usage{fill:none;stroke:currentColor;stroke-width:1.5}.late{fill:#cf222e}
.p0{color:#6639ba}.p1{color:#0969da}.p2{color:#bc4c00}.p3{color:#1a7f37}.p4{color:#656d76}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.faint{fill:#8d96a0}.paper{fill:#0d1117}.grid{stroke:#30363d}.late{fill:#f85149}
.p0{color:#a371f7}.p1{color:#4493f8}.p2{color:#f0883e}.p3{color:#3fb950}.p4{color:#8d96a0}}`

// colours is the number of the style's colours for pools.
const colours = 5

// Draw writes the drawing of runs to a file.
func Draw(file, title string, results []*Result) error {
	var drawing bytes.Buffer
	if err := SVG(&drawing, title, results); err != nil {
		return err
	}
	return os.WriteFile(file, drawing.Bytes(), 0o644) //nolint:gosec // anybody may read the drawing
}

// SVG draws the pools of runs over time, one run below the other. It stacks the pools' sizes, and
// in each shows its band and its usage; if pools share their CPUs, it stacks their usage. A red
// strip below shows when services exceeded their SLO.
func SVG(w io.Writer, title string, results []*Result) error {
	var b strings.Builder
	panel := panelTop + panelHeight + lateHeight + panelBottom
	height := legendTop + panel*float64(len(results)) + 8
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img">`+"\n", svgWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n<style>%s</style>\n", escape(title), svgStyle)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" class="paper"/>`+"\n")
	legend(&b, results)
	for i, r := range results {
		drawing{&b, &r.Series, legendTop + panelTop + panel*float64(i)}.panel(r)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(text)
}

// legend lists the pools that any run has used.
func legend(b *strings.Builder, results []*Result) {
	x, seen := svgLeft, map[string]bool{}
	for _, r := range results {
		for i := range r.Series.Pools {
			p := &r.Series.Pools[i]
			if seen[p.Name] || !p.drawn() {
				continue
			}
			seen[p.Name] = true
			fmt.Fprintf(b, `<rect x="%g" y="10" width="12" height="12" class="key p%d"/><text x="%g" y="20">%s</text>`+"\n", x, r.Series.colour(i), x+17, escape(p.Name))
			x += 34 + 7*float64(len(p.Name))
		}
	}
	fmt.Fprintf(b, `<rect x="%g" y="10" width="12" height="12" class="late"/><text x="%g" y="20">over the SLO</text>`+"\n", x, x+17)
}

// drawn reports whether the pool has anything to draw.
func (p *PoolSeries) drawn() bool {
	for i := range p.SizeCPUs {
		if p.SizeCPUs[i] > 0 || p.UsedCPUs[i] > 0 {
			return true
		}
	}
	return false
}

// colour returns the colour of a pool; the last two pools are always the batch pool and the pins.
func (s *Series) colour(pool int) int {
	switch n := len(s.Pools); pool {
	case n - 1:
		return colours - 1
	case n - 2:
		return 2
	default:
		return []int{0, 1, 3}[pool%3]
	}
}

// drawing is one panel.
type drawing struct {
	*strings.Builder
	series *Series
	top    float64
}

func (d drawing) x(i int) float64 {
	return svgLeft + (svgWidth-svgLeft-svgRight)*float64(i)/float64(max(1, len(d.series.LateFraction)))
}

func (d drawing) y(cpus float64) float64 {
	return d.top + panelHeight*(1-min(1, cpus/float64(d.series.NodeCPUs)))
}

func (d drawing) panel(r *Result) {
	fmt.Fprintf(d, `<text class="title" x="%g" y="%.1f">%s</text>`, svgLeft, d.top-8, escape(string(r.Policy)))
	fmt.Fprintf(d, `<text class="faint" text-anchor="end" x="%g" y="%.1f">%.1f %% busy, %.2f %% over the SLO, %.0f CPUs moved an hour</text>`+"\n",
		svgWidth-svgRight, d.top-8, 100*r.UtilizationFraction, 100*r.LateFraction, r.CPUMovesPerHour)
	d.grid()
	base := make([]float64, len(d.series.LateFraction))
	for at := len(d.series.Pools) - 2; at >= 0; at-- { // batch work at the bottom, the highest priority on top
		d.pool(at, base)
	}
	d.pool(len(d.series.Pools)-1, base)
	for i, late := range d.series.LateFraction {
		if late > 0 {
			fmt.Fprintf(d, `<rect class="late" x="%.1f" y="%.1f" width="%.2f" height="%g" fill-opacity="%.2f"/>`+"\n",
				d.x(i), d.top+panelHeight+2, d.x(1)-d.x(0), lateHeight, 0.25+0.75*late)
		}
	}
}

// pool draws one pool on top of those below it.
func (d drawing) pool(at int, base []float64) {
	p := &d.series.Pools[at]
	if !p.drawn() {
		return
	}
	colour := fmt.Sprintf(" p%d", d.series.colour(at))
	if d.series.Overlap {
		d.area("area"+colour, base, func(i int) (float64, float64) { return 0, p.UsedCPUs[i] })
		for i := range base {
			base[i] += p.UsedCPUs[i]
		}
		return
	}
	d.area("size"+colour, base, func(i int) (float64, float64) { return 0, p.SizeCPUs[i] })
	if p.BandHighPercent > 0 {
		d.area("band"+colour, base, func(i int) (float64, float64) {
			return p.SizeCPUs[i] * float64(p.BandLowPercent) / 100, p.SizeCPUs[i] * float64(p.BandHighPercent) / 100
		})
	}
	fmt.Fprintf(d, `<polyline class="usage%s" points="`, colour)
	for i := range base {
		fmt.Fprintf(d, "%.1f,%.1f ", d.x(i), d.y(base[i]+p.UsedCPUs[i]))
	}
	d.WriteString("\"/>\n")
	for i := range base {
		base[i] += p.SizeCPUs[i]
	}
}

// area fills the space between two values, in steps.
func (d drawing) area(class string, base []float64, at func(int) (low, high float64)) {
	fmt.Fprintf(d, `<path class="%s" d="M`, class)
	for i := range base {
		_, high := at(i)
		fmt.Fprintf(d, "%.1f %.1fH%.1f ", d.x(i), d.y(base[i]+high), d.x(i+1))
		if i+1 < len(base) {
			_, next := at(i + 1)
			fmt.Fprintf(d, "V%.1f L", d.y(base[i+1]+next))
		}
	}
	for i := range slices.Backward(base) {
		low, _ := at(i)
		fmt.Fprintf(d, "L%.1f %.1fH%.1f ", d.x(i+1), d.y(base[i]+low), d.x(i))
	}
	d.WriteString("Z\"/>\n")
}

// grid draws the axes: CPUs and the time of day.
func (d drawing) grid() {
	for i := range 5 {
		cpus := float64(d.series.NodeCPUs) * float64(i) / 4
		fmt.Fprintf(d, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="faint" text-anchor="end" x="%g" y="%.1f">%g</text>`+"\n",
			svgLeft, svgWidth-svgRight, d.y(cpus), d.y(cpus), svgLeft-6, d.y(cpus)+4, cpus)
	}
	const marks = 8
	n := len(d.series.LateFraction)
	for i := range marks + 1 {
		at := d.series.StartsAt.Add(time.Duration(i*n/marks) * d.series.Step)
		layout := "15:04"
		if time.Duration(n)*d.series.Step < 10*time.Minute {
			layout = "15:04:05"
		}
		anchor := "middle"
		if i == marks {
			anchor = "end"
		}
		fmt.Fprintf(d, `<text class="faint" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`+"\n", anchor, d.x(i*n/marks), d.top+panelHeight+lateHeight+16, at.Format(layout))
	}
}
