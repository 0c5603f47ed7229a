package control

import "time"

// Peaks is the most of each hour of a day; it marshals to JSON.
type Peaks struct {
	Hours [24]Peak `json:"hours"` // by hour since the epoch, modulo 24
}

// Peak is the most that was in demand in an hour.
type Peak struct {
	Hour int64         `json:"hour"` // since the epoch
	Seen time.Duration `json:"seen"` // of it
	Amount
}

// enter enters the demand of now.
func (p *Peaks) enter(now time.Time, demand Amount, passed time.Duration) {
	hour := hourOf(now)
	at := &p.Hours[hourIndex(hour)]
	if at.Hour != hour {
		*at = Peak{Hour: hour}
	}
	at.Amount = at.most(demand)
	at.Seen += passed
}

// most is the most of the hours that are known, with how many those are, rounded down:
// with 0 there is too little to go by.
func (p *Peaks) most(now time.Time) (peak Amount, hours int) {
	var seen time.Duration
	hour := hourOf(now)
	for i := range p.Hours {
		if at := &p.Hours[i]; at.Seen > 0 && at.Hour <= hour && at.Hour > hour-24 {
			peak = peak.most(at.Amount)
			seen += at.Seen
		}
	}
	return peak, int(seen / oneHour)
}

func hourOf(now time.Time) int64 { return floorDiv(now.Unix(), 3600) }

func hourIndex(hour int64) int64 { return hour - 24*floorDiv(hour, 24) }

// floorDiv rounds down, also before the epoch, where a clock without a battery begins.
func floorDiv(a, b int64) int64 {
	if q := a / b; a%b >= 0 {
		return q
	}
	return a/b - 1
}
