package control

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/suggest"
)

// minute is a time of day in minutes since midnight on the wall clock.
type minute int

const dayMinutes minute = 24 * 60

var errTime = errors.New(`must be a time of day like "09:30", "00:00" to "24:00"`)

// parseMinute parses a time such as "09:30".
func parseMinute(text string) (minute, error) {
	hours, minutes, ok := strings.Cut(text, ":")
	h, err := strconv.ParseUint(hours, 10, 8)
	m, err2 := strconv.ParseUint(minutes, 10, 8)
	at := minute(h*60 + m)
	if !ok || err != nil || err2 != nil || m > 59 || at > dayMinutes || len(hours) > 2 || len(minutes) != 2 {
		return 0, errTime
	}
	return at, nil
}

func dayNames() []string { return []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} }

// parseDays parses the names of days. An empty list means all days.
func parseDays(names []string) (days [7]bool, err error) {
	if len(names) == 0 {
		return [7]bool{true, true, true, true, true, true, true}, nil
	}
	for _, name := range names {
		if err := parseDay(name, &days); err != nil {
			return days, err
		}
	}
	return days, nil
}

func parseDay(name string, days *[7]bool) error {
	for i, known := range dayNames() {
		if strings.EqualFold(name, known) {
			days[i] = true
			return nil
		}
	}
	hint := ""
	if near := suggest.To(strings.ToLower(name), dayNames()); near != "" {
		hint = ", did you mean " + near + "?"
	}
	return fmt.Errorf("day %.20q: must be mon, tue, wed, thu, fri, sat or sun%s", name, hint)
}

// occurrence is one occurrence of a window. It includes from and excludes to.
type occurrence struct{ from, to time.Time }

// place finds the occurrence that contains now or has its grace now, or else the next one
// within a week. The span is zero if there is none.
func (c *dayWindow) place(now time.Time, zone *time.Location) {
	if !c.until.IsZero() && !now.Before(c.valid) && now.Before(c.until) {
		return
	}
	year, month, day := now.Date()
	c.span, c.valid, c.until = occurrence{}, now, now.Add(time.Hour)
	for d := -2; d <= 9; d++ {
		date := time.Date(year, month, day+d, 12, 0, 0, 0, time.UTC)
		if !c.days[date.Weekday()] {
			continue
		}
		s := c.on(date, zone)
		if !s.to.After(now) || !s.from.Before(s.to) {
			continue
		}
		c.span, c.until = s, s.to
		return
	}
}

// on returns the window's occurrence that begins on that day. Where the clocks change, it
// contains every instant whose wall time is in the window: of a time that comes twice, the
// first begins it and the second ends it. A time that does not exist stands for the instant of
// the clock change.
func (c *dayWindow) on(date time.Time, zone *time.Location) occurrence {
	to := c.to
	if to <= c.from {
		to += dayMinutes
	}
	from, _ := instants(date, c.from, zone)
	_, until := instants(date, to, zone)
	return occurrence{from, until}
}

// instants returns the first and the last instant at which clocks in the zone show that time on
// that day. The day is given by its noon in UTC.
func instants(date time.Time, at minute, zone *time.Location) (first, last time.Time) {
	wall := time.Date(date.Year(), date.Month(), date.Day(), 0, int(at), 0, 0, time.UTC)
	// The zone's offsets half a day before and after bracket any change in between.
	_, before := wall.Add(-14 * time.Hour).In(zone).Zone()
	_, after := wall.Add(14 * time.Hour).In(zone).Zone()
	early := wall.Add(-time.Duration(max(before, after)) * time.Second).In(zone)
	late := wall.Add(-time.Duration(min(before, after)) * time.Second).In(zone)
	isEarly, isLate := shows(early, wall), shows(late, wall)
	switch {
	case isEarly && isLate:
		return early, late
	case isEarly:
		return early, early
	case isLate:
		return late, late
	}
	change, _ := late.ZoneBounds() // clocks jump over the time: computed with the old offset, it lies behind the change
	return change, change
}

func shows(at, wall time.Time) bool {
	_, offset := at.Zone()
	return at.Unix()+int64(offset) == wall.Unix()
}
