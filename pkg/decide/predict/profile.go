package predict

import "time"

const (
	hoursOfDay  = 24
	hoursOfWeek = 7 * hoursOfDay
	// newPart is the part of the newest peak in the mean of a slot: of the last days' peaks, the
	// newest counts a third, and that of a week ago next to nothing.
	newPart = 1.0 / 3
)

// profile has the mean peak of each hour of the day, and of each hour of the week. Hours are
// those of UTC: their names do not matter.
type profile struct {
	slots [hoursOfDay + hoursOfWeek]uint16 // those of the day come first
}

func newProfile() (p profile) {
	for i := range p.slots {
		p.slots[i] = missing
	}
	return p
}

// enter adds the peak of an hour since the epoch.
func (p *profile) enter(hour int64, peak float64) {
	for _, slot := range p.slotsOf(hour) {
		value := peak
		if *slot != missing {
			value = unpack(*slot) + (peak-unpack(*slot))*newPart
		}
		*slot = pack(value)
	}
}

// slotsOf returns an hour's slot of the week, and then that of the day.
func (p *profile) slotsOf(hour int64) [2]*uint16 {
	return [2]*uint16{&p.slots[hoursOfDay+floorMod(hour, hoursOfWeek)], &p.slots[floorMod(hour, hoursOfDay)]}
}

// peak returns the mean peak of the hours of that time: by the same hours of the week, where they
// are known, or by those of the day.
func (p *profile) peak(from time.Time, horizon time.Duration) (peak float64, ok bool) {
	last := hourOf(from.Add(horizon - 1))
	for hour := hourOf(from); hour <= last; hour++ {
		slots := p.slotsOf(hour)
		slot := slots[0]
		if *slot == missing {
			slot = slots[1]
		}
		if *slot == missing {
			return 0, false
		}
		peak = max(peak, unpack(*slot))
	}
	return peak, true
}

func hourOf(at time.Time) int64 { return floorDiv(at.Unix(), 3600) }
