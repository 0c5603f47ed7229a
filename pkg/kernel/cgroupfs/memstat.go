package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// ErrPartial says that the kernel reclaimed less than was asked for.
var ErrPartial = errors.New("less memory was reclaimed than asked for")

// Reclaim makes the kernel take that much memory from a cgroup and those below, in
// the caller's time: it blocks while pages are written out. It returns ErrPartial
// where there was not as much to take, and ErrUnsupported without memory.reclaim
// (v2, 5.19).
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
		// Not again after a signal: part of it is done.
		return c.missing(c.folder.Write("memory.reclaim", strconv.FormatInt(int64(amount), 10)))
	})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = fmt.Errorf("%w: %w", ErrPartial, err)
	}
	if err != nil {
		return fmt.Errorf("reclaiming %s from cgroup %s: %w", amount, dir, err)
	}
	return nil
}

// MemoryStat is a cgroup's memory with that of the cgroups below.
type MemoryStat struct {
	Current  knobs.Bytes // in use
	Max      knobs.Bytes // hard limit
	File     knobs.Bytes // page cache in it, without tmpfs and shared memory
	Pressure float64     // percent of the last 10 s that some task waited for memory; negative: unknown
}

// MemoryStat reads a cgroup's memory. Pressure is the v2 hierarchy's, which a
// machine with v1 controllers often has beside them.
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
	// EOPNOTSUPP: PSI is built in and switched off at boot.
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
			// Not "file" or "total_cache": tmpfs is in it, which can only be swapped.
			m.File = amount(field(b, total+"active_file")) + amount(field(b, total+"inactive_file"))
		}),
	)
}

func (c *cgroup) scanFile(name string, take func([]byte)) error {
	f, temporary, err := c.kept([]string{name})
	if err != nil {
		return err
	}
	if temporary {
		defer f.Close() //nolint:errcheck // it was only read
	}
	return c.scan(f, take)
}

// field is the number in a line "name number" of memory.stat; empty without one.
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

// amount is the number at the start of a text; Max for "max" and v1's highest.
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

// someAvg10 is the avg10 of the line "some avg10=0.12 avg60=..." (Documentation/
// accounting/psi.rst); -1 without one.
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
