package control

import "time"

// Peaks holds the peak of each hour of a day. It marshals to JSON.
type Peaks struct {
	Hours [24]Peak `json:"hours"` // by hour since the epoch, modulo 24
}

// Peak is the highest demand in an hour.
type Peak struct {
	Hour     int64         `json:"hour"` // since the epoch
	Measured time.Duration `json:"seen"` // measured part of the hour
	Amount
}

// enter adds the present demand to the peaks.
func (p *Peaks) enter(now time.Time, demand Amount, passed time.Duration) {
	hour := hourOf(now)
	at := &p.Hours[hourIndex(hour)]
	if at.Hour != hour {
		*at = Peak{Hour: hour}
	}
	at.Amount = at.most(demand)
	at.Measured += passed
}

// most returns the highest of the known peaks and the number of hours that they cover, rounded
// down. With 0 hours, too little is known.
func (p *Peaks) most(now time.Time) (peak Amount, hours int) {
	var measured time.Duration
	hour := hourOf(now)
	for i := range p.Hours {
		if at := &p.Hours[i]; at.Measured > 0 && at.Hour <= hour && at.Hour > hour-24 {
			peak = peak.most(at.Amount)
			measured += at.Measured
		}
	}
	return peak, int(measured / oneHour)
}

func hourOf(now time.Time) int64 { return floorDiv(now.Unix(), 3600) }

func hourIndex(hour int64) int64 { return hour - 24*floorDiv(hour, 24) }

// floorDiv divides and rounds down. It also does so before the epoch, where a clock without a
// battery starts.
func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	}
	return a/b - 1
}
