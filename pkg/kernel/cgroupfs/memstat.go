package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ErrPartial says that the kernel reclaimed less memory than requested.
var ErrPartial = errors.New("less memory was reclaimed than asked for")

// What Reclaim requests at a time, so that a request takes less than a turn: dropping page cache is a hundred times as
// fast as compressing memory for zram.
const (
	leastRequest = knobs.Bytes(256 << 10)
	firstRequest = knobs.Bytes(1 << 20)
	mostRequest  = knobs.Bytes(64 << 20)
)

// Reclaim makes the kernel reclaim that much memory from a cgroup and its descendants, in turns. It
// blocks the caller while pages are written out. It returns ErrPartial if the kernel could not
// reclaim as much, and ErrUnsupported without memory.reclaim (v2, Linux 5.19).
func (d *Driver) Reclaim(dir string, amount knobs.Bytes) error {
	switch {
	case d.memory == nil || !d.memory.v2:
		return fmt.Errorf("reclaiming from cgroup %s: %w: memory.reclaim is on cgroup v2 alone", dir, ErrUnsupported)
	case dir == "/":
		return fmt.Errorf("reclaiming %s from the root cgroup is refused: it would take from every process", amount)
	case amount <= 0:
		return nil
	}
	err := d.memory.with(dir, func(c *cgroup) error {
		request, worked := firstRequest, time.Duration(0)
		for left := amount; left > 0; {
			now := min(request, left)
			began := time.Now()
			// This write is not repeated after a signal, because part of the memory has been
			// reclaimed.
			if err := c.folder.Write("memory.reclaim", strconv.FormatInt(int64(now), 10)); err != nil {
				return c.missing(err)
			}
			left -= now
			took := time.Since(began)
			switch {
			case took < thread.Turn/4:
				request = min(request*2, mostRequest)
			case took > thread.Turn/2:
				request = max(request/2, leastRequest)
			}
			if worked += took; worked >= thread.Turn && left > 0 {
				thread.Rest()
				worked = 0
			}
		}
		return nil
	})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = fmt.Errorf("%w: %w", ErrPartial, err)
	}
	if err != nil {
		return fmt.Errorf("reclaiming %s from cgroup %s: %w", amount, dir, err)
	}
	return nil
}

// MemoryStat describes the memory of a cgroup and its descendants.
type MemoryStat struct {
	Current  knobs.Bytes // bytes in use
	Max      knobs.Bytes // hard limit
	File     knobs.Bytes // page cache, without tmpfs and shared memory
	Pressure float64     // percent of the last 10 s in which some task waited for memory; negative: unknown
}

// MemoryStat reads the memory of a cgroup and its descendants. Pressure comes from the v2
// hierarchy, which often exists beside v1 controllers.
func (d *Driver) MemoryStat(dir string) (MemoryStat, error) {
	m := MemoryStat{Pressure: -1}
	if d.memory == nil {
		return m, fmt.Errorf("%w: the memory controller is not mounted", ErrUnsupported)
	}
	if err := d.memory.with(dir, func(c *cgroup) error { return c.memoryStat(&m) }); err != nil {
		return m, err
	}
	if d.unified == nil {
		return m, nil
	}
	err := d.unified.with(dir, func(c *cgroup) error {
		return c.scanFile("memory.pressure", func(b []byte) { m.Pressure = someAvg10(b) })
	})
	// EOPNOTSUPP says that PSI is built in but was switched off at boot.
	if errors.Is(err, ErrGone) || errors.Is(err, ErrUnsupported) {
		err = nil
	}
	return m, err
}

func (c *cgroup) memoryStat(m *MemoryStat) error {
	current, limit, total := "memory.usage_in_bytes", limitFile1, "total_"
	if c.in.v2 {
		current, limit, total = "memory.current", "memory.max", ""
	}
	return errors.Join(
		c.scanFile(current, func(b []byte) { m.Current = amount(b) }),
		c.scanFile(limit, func(b []byte) { m.Max = amount(b) }),
		c.scanFile("memory.stat", func(b []byte) {
			// "file" and "total_cache" include tmpfs, which can only be swapped.
			m.File = amount(field(b, total+"active_file")) + amount(field(b, total+"inactive_file"))
		}),
	)
}

func (c *cgroup) scanFile(name string, take func([]byte)) error {
	f, temporary, err := c.openCached([]string{name})
	if err != nil {
		return err
	}
	if temporary {
		defer f.Close() //nolint:errcheck // the file was opened for reading
	}
	return c.scan(f, take)
}

// field returns the number in the line "name number" of memory.stat; it is empty if there is no
// such line.
func field(text []byte, name string) []byte {
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		if len(line) > len(name) && line[len(name)] == ' ' && string(line[:len(name)]) == name {
			return line[len(name)+1:]
		}
	}
	return nil
}

// amount returns the number at the start of a text; it returns the maximum for "max" and for
// v1's highest value.
func amount(text []byte) knobs.Bytes {
	if bytes.HasPrefix(text, []byte("max")) {
		return knobs.Max
	}
	var n knobs.Bytes
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		if n >= unlimited1/10 {
			return knobs.Max
		}
		n = n*10 + knobs.Bytes(c-'0')
	}
	return n
}

// someAvg10 returns the avg10 of the line "some avg10=0.12 avg60=..." (Documentation/
// accounting/psi.rst), or -1 if there is no such line.
func someAvg10(text []byte) float64 {
	_, rest, ok := bytes.Cut(text, []byte("some avg10="))
	if !ok {
		return -1
	}
	number, _, ok := bytes.Cut(rest, []byte(" "))
	if !ok {
		return -1
	}
	n, err := strconv.ParseFloat(string(number), 64)
	if err != nil || n < 0 || n > 100 {
		return -1
	}
	return n
}
