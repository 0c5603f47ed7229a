package top

import (
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
)

// pools shows the pools' loads beside their bands.
func (f *frame) pools() []string {
	length := max(6, f.barLength()-rcfWidth-1)
	l := f.line()
	l.put(title, fmt.Sprintf("%s %4s %6s %5s %s %-7s %*s %5s %4s  %s", fit("  POOL", nameWidth+2), "CPUS", "USED", "LOAD", fit("", length+2), "BAND", rcfWidth, "RCF", "WAITS", "CTRS", "NOTE"))
	lines := []string{l.String()}
	letterOf := map[int]*owner{}
	all := owners(f.Status)
	for i := range all {
		if all[i].pool >= 0 {
			letterOf[all[i].pool] = &all[i]
		}
	}
	for i := range f.Status.Pools {
		p := &f.Status.Pools[i]
		l := f.line()
		if o := letterOf[i]; o != nil {
			l.put(o.tone, string(o.letter)+" ")
		}
		l.room(2)
		l.put(plain, fit(p.Name, nameWidth)+" "+right(fmt.Sprint(p.CPUs.Size()), 4))
		f.poolLoad(l, p, length)
		l.put(plain, " "+right(fmt.Sprint(p.Containers), 4)+gap)
		l.put(warn, poolNote(p))
		lines = append(lines, l.String())
	}
	return lines
}

// These are the widths of a pool's name and of its RCF in the table.
const (
	nameWidth = 10
	rcfWidth  = 5
)

func (f *frame) poolLoad(l *line, p *status.Pool, length int) {
	load, rcf := p.Load, "-"
	if p.RCFRatio > 0 {
		rcf = humanize.Percent(p.RCFRatio)
	}
	if load == nil || load.MeasuredAt.IsZero() {
		l.put(plain, " "+right("-", 6)+" "+right("-", 5)+" ["+strings.Repeat(" ", length)+"] "+fit("", 7)+" "+right(rcf, rcfWidth)+" "+right("-", 5))
		return
	}
	band, t := "", good
	var marks []float64
	if load.BandHighPercent > 0 {
		band = fmt.Sprintf("%d-%d%%", load.BandLowPercent, load.BandHighPercent)
		marks = []float64{float64(load.BandLowPercent) / 100, float64(load.BandHighPercent) / 100}
		if load.LoadFraction*100 < float64(load.BandLowPercent) || load.LoadFraction*100 > float64(load.BandHighPercent) {
			t = warn
		}
	}
	if load.LoadFraction >= 0.95 {
		t = bad
	}
	l.put(plain, " "+right(humanize.AlignedCPUs(load.Usage), 6)+" ")
	l.put(t, right(humanize.Percent(load.LoadFraction), 5)+" "+bar(load.LoadFraction, length, marks...))
	l.put(plain, " "+fit(band, 7)+" "+right(rcf, rcfWidth)+" ")
	l.put(strained(load.PressureFraction), right(humanize.Percent(load.PressureFraction), 5))
}

func poolNote(p *status.Pool) string {
	l := p.Load
	switch {
	case l == nil:
		return ""
	case l.ShortCPUs > 0:
		return "lacks " + fmt.Sprint(l.ShortCPUs)
	case l.Small:
		return "too small"
	case l.WantedCPUs > 0 && l.WantedCPUs != l.SizeCPUs:
		return "wants " + fmt.Sprint(l.WantedCPUs)
	case !p.Spare.IsEmpty():
		return "lends " + fmt.Sprint(p.Spare.Size())
	}
	return ""
}
