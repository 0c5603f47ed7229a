package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Line is one line of a recording, which consists of JSON lines: first the machine; then the
// containers, again after each change; between them the measurements.
type Line struct {
	Machine    *topology.Machine `json:"machine,omitempty"`
	Containers []Recorded        `json:"containers,omitempty"`
	Snapshot   *observe.Snapshot `json:"snapshot,omitempty"`
}

// Recorded is a container of a recording.
type Recorded struct {
	ID          string            `json:"id"`
	Ref         string            `json:"ref"` // "namespace/pod/container"
	Class       workload.Class    `json:"class"`
	Pool        string            `json:"pool,omitempty"`
	Request     workload.MilliCPU `json:"requestMilliCPU,omitempty"`
	Limit       workload.MilliCPU `json:"limitMilliCPU,omitempty"`    // 0 for none
	Memory      int64             `json:"memoryRequest,omitempty"`    // in bytes
	MemoryLimit int64             `json:"memoryLimitBytes,omitempty"` // 0 none
}

// Recorder writes a recording.
type Recorder struct {
	to         *json.Encoder
	begun      bool
	containers []Recorded
}

// NewRecorder makes a Recorder that writes to w.
func NewRecorder(w io.Writer) *Recorder { return &Recorder{to: json.NewEncoder(w)} }

// Record writes one snapshot, preceded by what has changed since the last one.
func (r *Recorder) Record(m *topology.Machine, containers []Recorded, snapshot *observe.Snapshot) error {
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

// Recording is a parsed recording.
type Recording struct {
	Machine   *topology.Machine
	Snapshots []observe.Snapshot
	Known     []Recorded // each container once, in the order of their appearance
}

// maxLine is the maximum length in bytes of a line.
const maxLine = 64 << 20

// ReadRecording parses a recording. It ignores an incomplete last line, which a recorder leaves
// when it is killed. The error names the line.
func ReadRecording(r io.Reader) (*Recording, error) {
	out := &Recording{}
	known := map[string]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
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
			out.Machine = line.Machine
		}
		for _, c := range line.Containers {
			if !known[c.ID] {
				known[c.ID] = true
				out.Known = append(out.Known, c)
			}
		}
		if line.Snapshot == nil {
			continue
		}
		if n := len(out.Snapshots); n > 0 && !line.Snapshot.Now.After(out.Snapshots[n-1].Now) {
			continue // the clock went back
		}
		out.Snapshots = append(out.Snapshots, *line.Snapshot)
	}
	switch err := lines.Err(); {
	case err != nil:
		return nil, fmt.Errorf("line %d can't be read: %w", number+1, err)
	case out.Machine == nil:
		return nil, errors.Join(errors.New("there is no machine in it: a recording begins with one (see sluice record)"), broken)
	case len(out.Snapshots) < 2:
		return nil, errors.Join(errors.New("there are fewer than two looks in it"), broken)
	}
	return out, nil
}
