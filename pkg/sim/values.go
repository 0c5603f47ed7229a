package sim

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
)

// Cores is an amount of CPU.
type Cores float64

// UnmarshalText parses a Kubernetes amount such as "2.5" or "500m".
func (c *Cores) UnmarshalText(text []byte) error {
	const most = 1 << 20
	q, err := quantity.Parse(string(text))
	switch {
	case err != nil:
		return err
	case q < 0 || q.Value() > most:
		return fmt.Errorf("must be 0 to %d", most)
	}
	*c = Cores(float64(q) / 1000)
	return nil
}

// Bytes is an amount of memory in bytes, or a rate in bytes per second.
type Bytes int64

// UnmarshalText parses a Kubernetes amount such as "4Gi".
func (b *Bytes) UnmarshalText(text []byte) error {
	const most = 1 << 50
	q, err := quantity.Parse(string(text))
	switch {
	case err != nil:
		return err
	case q < 0 || q.Value() > most:
		return errors.New("must be 0 to 1Pi")
	}
	*b = Bytes(q.Value())
	return nil
}

// Percent is a fraction; 1 is 100 %.
type Percent float64

// UnmarshalText parses a percentage such as "25%" or "0.1%".
func (p *Percent) UnmarshalText(text []byte) error {
	const most = 100000
	number, ok := strings.CutSuffix(strings.TrimSpace(string(text)), "%")
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || math.IsNaN(n) || n < 0 || n > most {
		return fmt.Errorf("must be a share of 0%% to %d%%, like 25%%", most)
	}
	*p = Percent(n / 100)
	return nil
}

// Hour is a time of day.
type Hour time.Duration

// UnmarshalText parses a time such as "09:30".
func (h *Hour) UnmarshalText(text []byte) error {
	at, err := time.Parse("15:04", string(text))
	if err != nil {
		return errors.New("must be a time of day like 09:30")
	}
	*h = Hour(time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute)
	return nil
}

// Time is a date with a time of day.
type Time time.Time

// UnmarshalText parses RFC 3339.
func (t *Time) UnmarshalText(text []byte) error {
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil || at.Year() < 1971 || at.Year() > 2200 {
		return errors.New("must be a date and time like 2026-01-05T00:00:00Z, of 1971 to 2200")
	}
	*t = Time(at.UTC())
	return nil
}

// UnmarshalText parses the name of a curve.
func (c *Curve) UnmarshalText(text []byte) error {
	return choose(c, text, Constant, Sine, Steps, Bursts, Trace)
}

// UnmarshalText parses "batch" or "online".
func (v *Vary) UnmarshalText(text []byte) error { return choose(v, text, VaryBatch, VaryOnline) }

func choose[T ~string](into *T, text []byte, choices ...T) error {
	names := make([]string, len(choices))
	for i, c := range choices {
		if string(c) == string(text) {
			*into = c
			return nil
		}
		names[i] = string(c)
	}
	last := len(names) - 1
	return errors.New("must be " + strings.Join(names[:last], ", ") + " or " + names[last])
}
