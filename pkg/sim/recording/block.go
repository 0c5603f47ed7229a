package recording

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// A recording of days is a sequence of blocks, each of which can be read by itself, so that
// recordings can be joined by writing one after the other. A block has a head:
//
//	8 bytes  mark
//	4 bytes  length of the rest, little-endian
//	4 bytes  CRC-32C of the rest
//
// The rest is compressed by DEFLATE (RFC 1951). Inside, numbers are variable-length as in
// encoding/binary, and texts follow their length:
//
//	begin in seconds since 1970, interval in seconds, number of intervals
//	machine as JSON
//	number of containers; of each: ID, ref, class, pool, requests and limits,
//	    its first interval, its number of intervals
//	each column of the first container, of the second, …
//
// Values are rounded to steps that grow with the value (see scale). A column has, for each
// interval, the difference to the value before, so that what changes little takes little.
const (
	family = "sluiceD"
	mark   = family + "\x01" // the version of the format
)

const (
	headLength  = len(mark) + 8
	maxPacked   = 16 << 20 // bytes of a block
	maxUnpacked = 32 << 20
	maxSlots    = 24 * 60 // intervals of a block
	maxText     = 4096    // bytes of a text other than the machine
	maxListed   = 1 << 16 // containers of a block
	idLength    = 12      // characters of an ID that are kept, as docker shows them
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// scale rounds values. Its steps are unit × growth at 0, and grow to the part growth of the value.
type scale struct{ unit, growth float64 }

// maxCode is the highest code: 6 million CPUs, 700 TB.
const maxCode = 1 << 10

// code returns the number of a value's step; 0 stands for Unknown.
func (s scale) code(v float64) int {
	if !(v >= 0) {
		return 0
	}
	return 1 + int(min(math.Round(math.Log1p(v/s.unit)/math.Log1p(s.growth)), maxCode-1))
}

func (s scale) value(code int) float32 {
	if code == 0 {
		return Unknown
	}
	return float32(s.unit * math.Expm1(float64(code-1)*math.Log1p(s.growth)))
}

// columns are what a block has of each container.
const (
	cpuColumn = iota
	peakColumn
	pressureColumn
	throttledColumn
	waitingColumn
	anonColumn
	cacheColumn
	columns
)

// scales returns the scale of each column. CPU and memory are right to within 1 %, shares of time
// and waiting threads to within 2.5 %, or a 4000th.
func scales() [columns]scale {
	cpu, memory, share := scale{0.01, 0.02}, scale{1 << 20, 0.02}, scale{0.01, 0.05}
	return [columns]scale{cpu, cpu, share, share, share, memory, memory}
}

// block is one block. All containers' columns have as many codes as the container has intervals.
type block struct {
	start      int64 // seconds since 1970
	interval   int64 // seconds
	slots      int
	machine    []byte
	containers []blockContainer
}

type blockContainer struct {
	Container
	first int
	codes [columns][]uint16
}

// pack returns the block with its head.
func (b *block) pack() ([]byte, error) {
	var out bytes.Buffer
	out.Write(make([]byte, headLength))
	to, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = to.Write(b.encode()); err == nil {
		err = to.Close()
	}
	if err != nil {
		return nil, err
	}
	packed := out.Bytes()
	rest := packed[headLength:]
	copy(packed, mark)
	binary.LittleEndian.PutUint32(packed[len(mark):], uint32(len(rest)))
	binary.LittleEndian.PutUint32(packed[len(mark)+4:], checksum(rest))
	return packed, nil
}

func (b *block) encode() []byte {
	text := func(out []byte, s string) []byte {
		return append(binary.AppendUvarint(out, uint64(len(s))), s...)
	}
	var out []byte
	for _, n := range []int64{b.start, b.interval, int64(b.slots)} {
		out = binary.AppendUvarint(out, uint64(n))
	}
	out = text(out, string(b.machine))
	out = binary.AppendUvarint(out, uint64(len(b.containers)))
	for i := range b.containers {
		c := &b.containers[i]
		for _, s := range []string{c.ID[:min(len(c.ID), idLength)], c.Ref, c.Class.String(), c.Pool} {
			out = text(out, s[:min(len(s), maxText)])
		}
		for _, n := range []int64{int64(c.Request), int64(c.Limit), c.Memory, c.MemoryLimit, int64(c.first), int64(len(c.codes[0]))} {
			out = binary.AppendUvarint(out, uint64(max(0, n)))
		}
	}
	for column := range columns {
		for i := range b.containers {
			before := 0
			for _, code := range b.containers[i].codes[column] {
				out = binary.AppendVarint(out, int64(code)-int64(before))
				before = int(code)
			}
		}
	}
	return out
}

// errCut is returned for a block whose end is missing.
var errCut = errors.New("its last block has no end")

// readBlock reads the next block, whose length in bytes it returns. The error is io.EOF where there
// is none, and errCut where it is incomplete.
func readBlock(r io.Reader) (*block, int64, error) {
	head := make([]byte, headLength)
	switch n, err := io.ReadFull(r, head); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil, 0, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, 0, errCut
	case err != nil:
		return nil, 0, err
	}
	if begin := head[:len(mark)]; string(begin) != mark {
		if IsDays(begin) {
			return nil, 0, fmt.Errorf("a block has version %d of the format, and this program reads version %d", begin[len(mark)-1], mark[len(mark)-1])
		}
		return nil, 0, errors.New("no block of a recording begins there")
	}
	length := int64(binary.LittleEndian.Uint32(head[len(mark):]))
	if length > maxPacked {
		return nil, 0, errors.New("the length of a block is damaged")
	}
	var packed bytes.Buffer // it grows with what there is, whatever the head says
	switch n, err := io.CopyN(&packed, r, length); {
	case n < length && errors.Is(err, io.EOF):
		return nil, 0, errCut
	case err != nil:
		return nil, 0, err
	}
	if checksum(packed.Bytes()) != binary.LittleEndian.Uint32(head[len(mark)+4:]) {
		return nil, 0, errors.New("the checksum of a block is wrong: the file was damaged")
	}
	b, err := unpack(packed.Bytes())
	return b, int64(headLength) + length, err
}

func unpack(packed []byte) (*block, error) {
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("a block is damaged: %w", err)
	}
	return decode(plain)
}

// decode is the inverse of encode.
func decode(plain []byte) (*block, error) {
	in := decoder{rest: plain}
	b := &block{start: int64(in.number(1 << 40)), interval: int64(in.number(24 * 3600)), slots: int(in.number(maxSlots))}
	b.machine = in.text(maxUnpacked)
	if b.interval == 0 || b.slots == 0 {
		in.failed = true
	}
	for range in.number(maxListed) {
		if c := in.container(b.slots); !in.failed {
			b.containers = append(b.containers, c)
		}
	}
	for column := range columns {
		for i := range b.containers {
			in.column(b.containers[i].codes[column])
		}
	}
	if in.failed {
		return nil, errors.New("a block is damaged: its numbers contradict each other")
	}
	return b, nil
}

// decoder reads what is left of a block. Once it has failed it returns zeros.
type decoder struct {
	rest   []byte
	budget int // intervals that the rest can have, set with the first container
	failed bool
}

// number reads a number that is at most most.
func (d *decoder) number(most uint64) uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > most || d.failed {
		d.failed = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text(most int) []byte {
	n := int(d.number(uint64(min(most, len(d.rest)))))
	if n > len(d.rest) {
		d.failed = true
		return nil
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}

// container reads a container. Its columns have place for its intervals, each of which takes a
// byte of what is left in each column.
func (d *decoder) container(slots int) blockContainer {
	c := blockContainer{}
	if d.failed {
		return c
	}
	c.ID, c.Ref = string(d.text(idLength)), string(d.text(maxText))
	if c.Class.UnmarshalText(d.text(maxText)) != nil {
		d.failed = true
	}
	c.Pool = string(d.text(maxText))
	const most = 1 << 50
	c.Request, c.Limit = workload.MilliCPU(d.number(most)), workload.MilliCPU(d.number(most))
	c.Memory, c.MemoryLimit = int64(d.number(most)), int64(d.number(most))
	c.first = int(d.number(uint64(slots - 1)))
	count := int(d.number(uint64(slots - c.first)))
	if d.budget += count * columns; d.budget > len(d.rest) {
		d.failed = true
	}
	if !d.failed {
		for i := range c.codes {
			c.codes[i] = make([]uint16, count)
		}
	}
	return c
}

func (d *decoder) column(codes []uint16) {
	before := int64(0)
	for i := range codes {
		difference, size := binary.Varint(d.rest)
		code := before + difference
		if size <= 0 || code < 0 || code > maxCode {
			d.failed = true
			return
		}
		d.rest = d.rest[size:]
		codes[i], before = uint16(code), code
	}
}

// readDays parses a recording of days. The error says where a damaged block begins.
func readDays(r io.Reader) (*Recording, error) {
	in := newReader()
	at, blocks := int64(0), 0
	for {
		b, length, err := readBlock(r)
		if errors.Is(err, io.EOF) || errors.Is(err, errCut) {
			break
		}
		if err == nil {
			err = in.block(b)
		}
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", at, err)
		}
		at += length
		blocks++
	}
	if blocks == 0 {
		return nil, errors.New("there is no whole block in it: a recorder writes one per hour, and one when it ends")
	}
	return &in.Recording, nil
}

// block adds a block, unless it begins before the end of what is there: then the clock went back,
// or two recorders wrote to one file.
func (in *reader) block(b *block) error {
	start := time.Unix(b.start, 0).UTC()
	if in.Start.IsZero() {
		in.Start, in.Interval = start, time.Duration(b.interval)*time.Second
	}
	if start.Before(in.End) {
		return nil
	}
	m := &topology.Machine{}
	if err := json.Unmarshal(b.machine, m); err != nil {
		return fmt.Errorf("the machine of a block: %w", err)
	}
	interval := time.Duration(b.interval) * time.Second
	in.Machine, in.Interval = m, max(in.Interval, interval)
	in.End = start.Add(time.Duration(b.slots) * interval)
	for i := range b.containers {
		c := &b.containers[i]
		t := in.track(c.ID+" "+c.Ref, c.Container)
		for slot := range c.codes[0] {
			if s, known := c.sample(slot); known {
				s.At = start.Sub(in.Start) + time.Duration(c.first+slot)*interval
				t.Samples = append(t.Samples, s)
			}
		}
	}
	return nil
}

// sample returns the sample of an interval, if its CPU is known.
func (c *blockContainer) sample(slot int) (s Sample, known bool) {
	scales := scales()
	var values [columns]float32
	for i := range values {
		values[i] = scales[i].value(int(c.codes[i][slot]))
	}
	return Sample{
		CPU: values[cpuColumn], Peak: max(values[cpuColumn], values[peakColumn]), Pressure: values[pressureColumn],
		Throttled: values[throttledColumn], Waiting: values[waitingColumn],
		Anon: max(0, values[anonColumn]), Cache: max(0, values[cacheColumn]),
	}, values[cpuColumn] != Unknown
}
