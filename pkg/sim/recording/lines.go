package recording

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/topology"
)

// Line is one line of a recording of single measurements, which consists of JSON lines: first the
// machine; then the containers, again after each change; between them the measurements.
type Line struct {
	Machine    *topology.Machine `json:"machine,omitempty"`
	Containers []Container       `json:"containers,omitempty"`
	Snapshot   *observe.Snapshot `json:"snapshot,omitempty"`
}

// Lines writes a recording of single measurements.
type Lines struct {
	to         *json.Encoder
	begun      bool
	containers []Container
}

// NewLines makes a recorder of single measurements that writes to w.
func NewLines(w io.Writer) *Lines { return &Lines{to: json.NewEncoder(w)} }

// Record writes one snapshot, preceded by what has changed since the last one.
func (r *Lines) Record(m *topology.Machine, containers []Container, snapshot *observe.Snapshot) error {
	if !r.begun {
		if err := r.to.Encode(Line{Machine: m}); err != nil {
			return err
		}
		r.begun = true
	}
	if !slices.Equal(containers, r.containers) {
		r.containers = slices.Clone(containers)
		if err := r.to.Encode(Line{Containers: r.containers}); err != nil {
			return err
		}
	}
	return r.to.Encode(Line{Snapshot: snapshot})
}

// Close ends the recording, of which each line is written already.
func (r *Lines) Close() error { return nil }

// maxLine is the maximum length in bytes of a line.
const maxLine = 64 << 20

// readLines parses a recording of single measurements. It ignores an incomplete last line, which a
// recorder leaves when it is killed. The error names the line.
func readLines(r io.Reader) (*Recording, error) {
	in := newReader()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number, looks := 0, 0
	var broken error
	for lines.Scan() {
		number++
		if broken != nil {
			return nil, broken
		}
		var line Line
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			broken = fmt.Errorf("line %d is not of a recording: %w", number, err)
			continue
		}
		if line.Machine != nil {
			in.Machine = line.Machine
		}
		for _, c := range line.Containers {
			in.track(c.ID, c)
		}
		if s := line.Snapshot; s != nil && (looks == 0 || s.Now.After(in.End)) { // else the clock went back
			looks++
			in.look(s)
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, fmt.Errorf("line %d can't be read: %w", number+1, err)
	case in.Machine == nil:
		return nil, errors.Join(errNoMachine, broken)
	case looks < 2:
		return nil, errors.Join(errors.New("there are fewer than two looks in it"), broken)
	}
	return &in.Recording, nil
}

// look adds a measurement.
func (in *reader) look(s *observe.Snapshot) {
	if in.Start.IsZero() {
		in.Start = s.Now
	}
	in.End = s.Now
	for i := range s.Containers {
		c := &s.Containers[i]
		at, known := in.byID[c.ID]
		if !known || c.CPU.At.IsZero() {
			continue
		}
		t := &in.Tracks[at]
		cpu := float32(c.CPU.Usage) / 1000
		sample := Sample{
			At: s.Now.Sub(in.Start), CPU: cpu, Peak: cpu, Pressure: Unknown, Throttled: Unknown, Waiting: Unknown,
			Anon: float32(c.Memory.Anon), Cache: float32(c.Memory.Cache),
		}
		if !c.Pressure.At.IsZero() {
			sample.Pressure = float32(c.Pressure.CPU)
		}
		if !c.CPU.StatAt.IsZero() {
			sample.Throttled = 0
			if c.CPU.Periods > 0 {
				sample.Throttled = float32(c.CPU.Throttled) / float32(c.CPU.Periods)
			}
		}
		if !c.RunDelay.At.IsZero() {
			sample.Waiting = float32(c.RunDelay.Waiting)
		}
		t.Samples = append(t.Samples, sample)
	}
}
