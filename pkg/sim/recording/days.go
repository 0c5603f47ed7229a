package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/topology"
)

// blockTime is what a block covers: what a crash of the recorder can lose.
const blockTime = time.Hour

// These bound the interval of a recording of days.
const (
	LeastInterval = 10 * time.Second
	MostInterval  = time.Hour
)

// Days writes a recording of days. It sums up the measurements of each interval, and writes a
// block per hour.
type Days struct {
	to       io.Writer
	interval time.Duration
	slot     int64 // present interval, counted from 1970; 0 before the first
	block    *block
	byID     map[string]*sums
	order    []*sums // of this block
}

// sums are the measurements of one container in the present interval.
type sums struct {
	Container
	place      int // index in the block's containers
	cpuAt      time.Time
	statAt     time.Time
	pressureAt time.Time
	delayAt    time.Time
	interval
}

// interval has sums that begin anew in each interval.
type interval struct {
	cpu, over, peak         float64 // CPU seconds, seconds, CPUs
	periods, throttled      int64
	pressure, waiting       mean
	anon, cache             float64
	memory, quota, measured bool
}

// mean is a mean of values.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum, m.n = m.sum+v, m.n+1 }

// value returns the mean, or Unknown without a value.
func (m *mean) value() float64 {
	if m.n == 0 {
		return Unknown
	}
	return m.sum / float64(m.n)
}

// NewDays makes a recorder that writes to w one sample per interval: LeastInterval to MostInterval,
// in whole seconds.
func NewDays(w io.Writer, interval time.Duration) (*Days, error) {
	if interval < LeastInterval || interval > MostInterval || interval%time.Second != 0 {
		return nil, fmt.Errorf("the interval %s of a recording of days must be %s to %s in whole seconds", interval, LeastInterval, MostInterval)
	}
	return &Days{to: w, interval: interval, byID: map[string]*sums{}}, nil
}

// Record adds a measurement of the containers. A container that is no longer in the list has
// ended.
func (d *Days) Record(m *topology.Machine, containers []Container, s *observe.Snapshot) error {
	slot := s.Now.UnixNano() / int64(d.interval)
	if d.block != nil && slot != d.slot {
		d.finish()
	}
	if d.block != nil && (slot < d.slot || slot-d.block.first(d.interval) >= int64(d.slots())) {
		if err := d.write(); err != nil {
			return err
		}
	}
	if d.block == nil {
		machine, err := json.Marshal(m)
		if err != nil {
			return err
		}
		seconds := int64(d.interval / time.Second)
		d.block = &block{start: slot * seconds, interval: seconds, machine: machine}
	}
	d.slot = slot
	running := make(map[string]*sums, len(containers))
	for _, c := range containers {
		sum := d.byID[c.ID]
		if sum == nil {
			sum = &sums{place: -1}
		}
		sum.Container = c
		running[c.ID] = sum
	}
	d.byID = running
	for i := range s.Containers {
		c := &s.Containers[i]
		if sum := running[c.ID]; sum != nil {
			d.enter(sum)
			sum.add(c)
		}
	}
	return nil
}

// first returns the number of the block's first interval, counted from 1970.
func (b *block) first(interval time.Duration) int64 { return b.start / int64(interval/time.Second) }

// slots returns the number of intervals of a whole block.
func (d *Days) slots() int { return max(1, int(blockTime/d.interval)) }

// enter gives a container its place in the block.
func (d *Days) enter(sum *sums) {
	if sum.place >= 0 || len(d.order) == maxListed {
		return
	}
	sum.place = len(d.order)
	d.order = append(d.order, sum)
	d.block.containers = append(d.block.containers, blockContainer{first: int(d.slot - d.block.first(d.interval))})
}

// add adds a measurement, of which each part counts once.
func (s *sums) add(c *observe.Container) {
	if c.CPU.At.After(s.cpuAt) {
		s.cpuAt, s.measured = c.CPU.At, true
		seconds, cpus := c.CPU.Interval.Seconds(), float64(c.CPU.Usage)/1000
		s.cpu, s.over, s.peak = s.cpu+cpus*seconds, s.over+seconds, max(s.peak, cpus)
	}
	if c.CPU.StatAt.After(s.statAt) {
		s.statAt, s.quota = c.CPU.StatAt, true
		s.periods, s.throttled = s.periods+c.CPU.Periods, s.throttled+c.CPU.Throttled
	}
	if c.Pressure.At.After(s.pressureAt) {
		s.pressureAt = c.Pressure.At
		s.pressure.add(c.Pressure.CPU)
	}
	if c.RunDelay.At.After(s.delayAt) {
		s.delayAt = c.RunDelay.At
		s.waiting.add(c.RunDelay.Waiting)
	}
	if !c.Memory.At.IsZero() {
		s.memory = true
		s.anon = max(s.anon, float64(c.Memory.Anon))
		s.cache = max(s.cache, float64(c.Memory.WorkingSet-c.Memory.Anon))
	}
}

// finish ends the present interval.
func (d *Days) finish() {
	slot := int(d.slot - d.block.first(d.interval))
	d.block.slots = slot + 1
	scales := scales()
	for _, sum := range d.order {
		values, measured := sum.values(), sum.measured
		sum.interval = interval{}
		if !measured {
			continue
		}
		c := &d.block.containers[sum.place]
		c.Container = sum.Container
		for i, v := range values {
			for len(c.codes[i]) < slot-c.first { // nothing was measured meanwhile
				c.codes[i] = append(c.codes[i], 0)
			}
			c.codes[i] = append(c.codes[i], uint16(scales[i].code(v)))
		}
	}
}

// values returns the interval's values by column.
func (s *interval) values() [columns]float64 {
	v := [columns]float64{cpuColumn: s.cpu / s.over, peakColumn: s.peak, pressureColumn: s.pressure.value(), throttledColumn: Unknown, waitingColumn: s.waiting.value(), anonColumn: Unknown, cacheColumn: Unknown}
	if s.quota {
		v[throttledColumn] = float64(s.throttled) / float64(max(1, s.periods))
	}
	if s.memory {
		v[anonColumn], v[cacheColumn] = s.anon, max(0, s.cache)
	}
	return v
}

// write writes the block, and begins another one with the next measurement.
func (d *Days) write() error {
	b := d.block
	kept := b.containers[:0]
	for i := range b.containers {
		if len(b.containers[i].codes[0]) > 0 {
			kept = append(kept, b.containers[i])
		}
	}
	b.containers = kept
	for _, sum := range d.order {
		sum.place = -1
	}
	d.block, d.order = nil, d.order[:0]
	packed, err := b.pack()
	if err != nil {
		return err
	}
	_, err = d.to.Write(packed) // in one piece, so that a file ends at a block unless the machine crashes
	return err
}

// Close writes what has been measured since the last block.
func (d *Days) Close() error {
	if d.block == nil {
		return nil
	}
	d.finish()
	return d.write()
}

// Whole returns how many bytes of a recording of days are whole blocks. What follows them was being
// written when the recorder was killed. It fails if a block is damaged, or r is something else.
func Whole(r io.Reader) (int64, error) {
	at := int64(0)
	for {
		_, length, err := readBlock(r)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, errCut):
			return at, nil
		case err != nil:
			return at, fmt.Errorf("at byte %d: %w", at, err)
		}
		at += length
	}
}
