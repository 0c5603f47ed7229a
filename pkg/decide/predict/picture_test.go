package predict

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/svg"
)

// These are the picture's measures in its own units.
const (
	pictureWidth  = 960.0
	panelsPerRow  = 2
	panelLeft     = 42.0 // for the axis of amounts
	panelGap      = 14.0
	panelTop      = 34.0 // for the title
	panelHeight   = 112.0
	stripHeight   = 5.0
	panelBottom   = 28.0 // for the axis of time
	pictureLegend = 36.0
)

const pictureStyle = `.real{fill:currentColor;fill-opacity:.35}.forecast{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}
`

// bin is the time in minutes whose highest usage is one step of the picture.
const bin = 30

// panel is the picture of one course.
type panel struct {
	*svg.Picture
	left, top, width float64
	minutes          int     // shown
	scale            float64 // of the usage, to the unit of the axis
	most             float64 // at the upper end of the axis
}

// The picture in docs/prediction.svg shows forecast against real usage on the made days.
func TestPicture(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/prediction.svg"
	want := picture()
	have, err := os.ReadFile(file)
	if err == nil && string(have) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date (%v): go test ./pkg/decide/predict -update", file, err)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func picture() string {
	all := courses()
	rows := (len(all) + panelsPerRow - 1) / panelsPerRow
	row := panelTop + panelHeight + stripHeight + panelBottom
	p := svg.New(pictureWidth, pictureLegend+row*float64(rows)+6, "Forecast and real usage of the made days", pictureStyle)
	x := p.Key(panelLeft, 20, "real p1", "usage: the highest minute of each half hour")
	x = p.Key(x, 20, "key p2", "forecast of the next hour's peak, made at its beginning")
	p.Key(x, 20, "late", "the forecast was too low")
	width := (pictureWidth - panelGap) / panelsPerRow
	cfg := DefaultConfig()
	for i, c := range all {
		usage := c.days()
		results, chosen := backtest(&cfg, c.resource, usage, testedFrom*dayMinutes, c.request)
		at := panel{
			Picture: p, left: float64(i%panelsPerRow)*(width+panelGap) + panelLeft, width: width - panelLeft - panelGap,
			top: pictureLegend + panelTop + row*float64(i/panelsPerRow), minutes: weekMinutes, scale: 1,
		}
		unit := "CPUs"
		if c.resource == Memory {
			at.scale, unit = 1<<30, "GiB"
		}
		if strings.HasPrefix(c.name, "job") || c.name == "no pattern" { // its peaks are minutes apart
			at.minutes = dayMinutes
		}
		at.Text("title", svg.Start, at.left, at.top-10, c.name)
		at.Text("faint", svg.End, at.left-6, at.top-10, unit)
		m := &results[chosenColumn]
		at.Text("faint", svg.End, at.left+at.width, at.top-10, fmt.Sprintf("%.0f %% too high, too low in %.0f %% of hours", 100*m.over/float64(m.hours), 100*float64(m.tooLow)/float64(m.hours)))
		at.draw(usage[testedFrom*dayMinutes:], chosen)
	}
	return p.End()
}

// draw draws the usage of the first minutes and the forecasts of their hours.
func (p *panel) draw(usage, forecasts []float64) {
	forecasts = forecasts[:p.minutes/60]
	usage = usage[:p.minutes]
	p.axes(max(slices.Max(usage), slices.Max(forecasts)) / p.scale)
	fmt.Fprintf(p, `<path class="real p1" d="M%.1f %.1f`, p.x(0), p.y(0))
	for i := 0; i < len(usage); i += bin {
		fmt.Fprintf(p, "V%.1fH%.1f", p.y(slices.Max(usage[i:i+bin])), p.x(i+bin))
	}
	fmt.Fprintf(p, "V%.1fZ\"/>\n", p.y(0))
	fmt.Fprintf(p, `<path class="forecast p2" d="M%.1f %.1f`, p.x(0), p.y(forecasts[0]))
	for i, forecast := range forecasts {
		fmt.Fprintf(p, "V%.1fH%.1f", p.y(forecast), p.x(60*(i+1)))
	}
	p.WriteString("\"/>\n")
	for i, forecast := range forecasts {
		if peak := slices.Max(usage[60*i : 60*(i+1)]); forecast < peak {
			fmt.Fprintf(p, `<rect class="late" x="%.1f" y="%.1f" width="%.1f" height="%g"/>`+"\n", p.x(60*i), p.y(0)+2, p.x(60)-p.x(0), stripHeight-1)
		}
	}
}

// axes draws the grid and its labels up to an amount.
func (p *panel) axes(most float64) {
	step := 0.0
	for _, step = range []float64{0.5, 1, 2, 4, 5, 10, 20, 50, 100} {
		if most <= 5*step {
			break
		}
	}
	for p.most = step; p.most < most; p.most += step {
	}
	for at := 0.0; at <= p.most; at += step {
		p.Rule(p.left, p.left+p.width, p.y(at*p.scale))
		p.Text("faint", svg.End, p.left-6, p.y(at*p.scale)+4, fmt.Sprint(at))
	}
	start := begin.Add(testedFrom * 24 * time.Hour)
	if p.minutes == dayMinutes {
		for hour := 0; hour <= 24; hour += 4 {
			p.upright(60 * hour)
			anchor := svg.Middle
			if hour == 24 {
				anchor = svg.End
			}
			p.Text("faint", anchor, p.x(60*hour), p.y(0)+stripHeight+15, fmt.Sprintf("%02d:00", hour))
		}
		return
	}
	for day := range p.minutes / dayMinutes {
		p.upright(day * dayMinutes)
		p.Text("faint", svg.Middle, p.x(day*dayMinutes+dayMinutes/2), p.y(0)+stripHeight+15, start.AddDate(0, 0, day).Format("Mon"))
	}
}

// upright draws the grid's line of a time.
func (p *panel) upright(minute int) {
	fmt.Fprintf(p, `<path class="grid" d="M%.1f %.1fV%.1f"/>`+"\n", p.x(minute), p.top, p.y(0))
}

func (p *panel) x(minute int) float64 { return p.left + p.width*float64(minute)/float64(p.minutes) }

func (p *panel) y(usage float64) float64 {
	return p.top + panelHeight*(1-usage/p.scale/p.most)
}
