package sim

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/svg"
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

// svgStyle has the classes of this drawing.
const svgStyle = `.size{fill:currentColor;fill-opacity:.28}.band{fill:currentColor;fill-opacity:.25}
.area{fill:currentColor;fill-opacity:.75}.usage{fill:none;stroke:currentColor;stroke-width:1.5}`

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
	panel := panelTop + panelHeight + lateHeight + panelBottom
	height := legendTop + panel*float64(len(results)) + 8
	p := svg.New(svgWidth, height, title, svgStyle)
	legend(p, results)
	for i, r := range results {
		drawing{p, &r.Series, legendTop + panelTop + panel*float64(i)}.panel(r)
	}
	_, err := io.WriteString(w, p.End())
	return err
}

// legend lists the pools that any run has used.
func legend(p *svg.Picture, results []*Result) {
	const baseline = 20
	x, seen := svgLeft, map[string]bool{}
	for _, r := range results {
		for i := range r.Series.Pools {
			pool := &r.Series.Pools[i]
			if seen[pool.Name] || !pool.drawn() {
				continue
			}
			seen[pool.Name] = true
			x = p.Key(x, baseline, fmt.Sprintf("key p%d", r.Series.colour(i)), pool.Name)
		}
	}
	p.Key(x, baseline, "late", "over the SLO")
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
		return svg.Colours - 1
	case n - 2:
		return 2
	default:
		return []int{0, 1, 3}[pool%3]
	}
}

// drawing is one panel.
type drawing struct {
	*svg.Picture
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
	d.Text("title", svg.Start, svgLeft, d.top-8, string(r.Policy))
	d.Text("faint", svg.End, svgWidth-svgRight, d.top-8,
		fmt.Sprintf("%.1f %% busy, %.2f %% over the SLO, %.0f CPUs moved an hour", 100*r.UtilizationFraction, 100*r.LateFraction, r.CPUMovesPerHour))
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
		d.Rule(svgLeft, svgWidth-svgRight, d.y(cpus))
		d.Text("faint", svg.End, svgLeft-6, d.y(cpus)+4, fmt.Sprint(cpus))
	}
	const marks = 8
	n := len(d.series.LateFraction)
	for i := range marks + 1 {
		at := d.series.StartsAt.Add(time.Duration(i*n/marks) * d.series.Step)
		layout := "15:04"
		if time.Duration(n)*d.series.Step < 10*time.Minute {
			layout = "15:04:05"
		}
		anchor := svg.Middle
		if i == marks {
			anchor = svg.End
		}
		d.Text("faint", anchor, d.x(i*n/marks), d.top+panelHeight+lateHeight+16, at.Format(layout))
	}
}
