package predict

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// The form of a saved set: the mark, the version, the series, and the checksum of all before it.
// All numbers are little-endian.
const (
	mark    = "sluice.forecast\n"
	version = 1
	maxName = 512
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns what the set has learned. What was measured since the last full minute is not
// part of it.
func (s *Set) Encode() []byte {
	b := append([]byte(nil), mark...)
	b = binary.LittleEndian.AppendUint16(b, version)
	for _, m := range s.order {
		if len(m.key.Name) <= maxName {
			b = m.encode(b)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func (m *member) encode(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, byte(m.key.Kind), byte(m.key.Resource), byte(m.trials[0].chosen), byte(m.trials[1].chosen))
	b = append(le.AppendUint16(b, uint16(len(m.key.Name))), m.key.Name...)
	b = le.AppendUint32(b, uint32(m.period/time.Minute))
	for i := range m.trials {
		for _, t := range m.trials[i].tests {
			for _, sum := range []float64{t.weight, t.loss, t.kept} {
				b = le.AppendUint64(b, math.Float64bits(sum))
			}
		}
	}
	m.histogram.settle()
	b = le.AppendUint64(b, uint64(m.histogram.reference.Unix()))
	b = le.AppendUint16(b, uint16(len(m.histogram.weights)))
	for _, w := range m.histogram.weights {
		b = le.AppendUint16(b, pack(float64(w)))
	}
	for _, slot := range m.profile.slots {
		b = le.AppendUint16(b, slot)
	}
	h := &m.history
	b = le.AppendUint64(b, uint64(h.first))
	b = le.AppendUint32(b, uint32(h.last-h.first+1))
	for step := h.first; step <= h.last; step++ {
		b = le.AppendUint16(b, h.values[floorMod(step, int64(len(h.values)))])
	}
	return b
}

// Decode returns the set that Encode saved.
func Decode(cfg Config, b []byte) (*Set, error) {
	body := len(b) - crc32.Size
	if body < len(mark)+2 || string(b[:len(mark)]) != mark {
		return nil, errors.New("it is no saved forecast of Sluice")
	}
	if sum := binary.LittleEndian.Uint32(b[body:]); sum != crc32.Checksum(b[:body], castagnoli) {
		return nil, errors.New("its checksum is wrong: it was damaged, or written in part")
	}
	r := reader{rest: b[len(mark):body]}
	if v := r.number(2); v != version {
		return nil, fmt.Errorf("it has version %d of the format, and this program reads version %d", v, version)
	}
	s := NewSet(cfg)
	for len(r.rest) > 0 && r.err == nil && len(s.order) < MaxSeries {
		if m := r.member(s.cfg); r.err == nil && s.series[m.key] == nil {
			s.insert(m)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// reader reads numbers from what is left. After an error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = errors.New("it is damaged: " + what)
	}
}

func (r *reader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.fail("it ends early")
		r.rest = nil
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// number reads a number of so many bytes: 1, 2, 4 or 8.
func (r *reader) number(size int) uint64 {
	var padded [8]byte
	copy(padded[:], r.bytes(size))
	return binary.LittleEndian.Uint64(padded[:])
}

// float reads a sum, which is neither negative nor infinite.
func (r *reader) float() float64 {
	f := math.Float64frombits(r.number(8))
	if !(f >= 0) || f > math.MaxFloat32 {
		r.fail("a sum is out of range")
		return 0
	}
	return f
}

// packed reads a packed value.
func (r *reader) packed() uint16 {
	v := uint16(r.number(2))
	if v != missing && v > pack(math.Inf(1)) {
		r.fail("a value is out of range")
		return missing
	}
	return v
}

func (r *reader) member(cfg *Config) *member {
	kind, resource, near, far := Kind(r.number(1)), Resource(r.number(1)), Method(r.number(1)), Method(r.number(1))
	if kind > Class || resource > Memory || int(max(near, far)) >= methods {
		r.fail("a kind, a resource or a method is unknown")
		return nil
	}
	length := int(r.number(2))
	if length > maxName {
		r.fail("a name is too long")
		return nil
	}
	key := Key{kind, string(r.bytes(length)), resource}
	m := &member{Series: NewSeries(cfg, resource, key.step()), key: key}
	m.trials[0].chosen, m.trials[1].chosen = near, far
	m.period = time.Duration(r.number(4)) * time.Minute
	if m.period > historyTime/leastPeriods {
		r.fail("a period is too long")
	}
	for i := range m.trials {
		for k := range m.trials[i].tests {
			t := &m.trials[i].tests[k]
			t.weight, t.loss, t.kept = r.float(), r.float(), r.float()
			t.kept = min(t.kept, t.weight)
		}
	}
	r.histogram(&m.histogram)
	for i := range m.profile.slots {
		m.profile.slots[i] = r.packed()
	}
	r.history(&m.history)
	return m
}

func (r *reader) histogram(h *Histogram) {
	h.reference = r.time()
	buckets := int(r.number(2))
	if buckets > h.scale.bucket(h.scale.Most)+1 {
		r.fail("a histogram has too many buckets")
		return
	}
	h.weights = make([]float32, buckets)
	for i := range h.weights {
		if w := r.packed(); w != missing {
			h.weights[i] = float32(unpack(w))
			h.total += float64(h.weights[i])
		}
	}
	if h.total == 0 {
		h.reference = time.Time{}
	}
	h.newest = h.reference
}

// latest bounds times, so that differences between them do not overflow.
const latest = 1 << 40 // seconds since the epoch

func (r *reader) time() time.Time {
	at := int64(r.number(8))
	if at > latest {
		r.fail("a time is out of range")
		return time.Time{}
	}
	return time.Unix(max(at, -latest), 0) // the zero time is before the epoch
}

func (r *reader) history(h *history) {
	first, count := int64(r.number(8)), int64(r.number(4))
	if first > latest || first < -latest || count > int64(len(h.values)) {
		r.fail("a history is too long")
		return
	}
	h.first, h.last = first, first+count-1
	for step := h.first; step <= h.last; step++ {
		h.values[floorMod(step, int64(len(h.values)))] = r.packed()
	}
}
