// Package recording writes and reads recordings of what a node's containers did. There are two
// forms: single measurements as JSON lines, and days, which keep one value per minute in
// compressed blocks.
package recording

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Container is a container of a recording.
type Container struct {
	ID          string            `json:"id"`
	Ref         string            `json:"ref"` // "namespace/pod/container"
	Class       workload.Class    `json:"class"`
	Pool        string            `json:"pool,omitempty"`
	Request     workload.MilliCPU `json:"requestMilliCPU,omitempty"`
	Limit       workload.MilliCPU `json:"limitMilliCPU,omitempty"`    // 0 for none
	Memory      int64             `json:"memoryRequest,omitempty"`    // in bytes
	MemoryLimit int64             `json:"memoryLimitBytes,omitempty"` // 0 none
}

// PeakTime is the time between two measurements for a recording of days: how long the highest CPU
// of an interval lasted at least.
const PeakTime = 5 * time.Second

// Unknown is a value of a sample that was not measured.
const Unknown = -1

// Sample is what a container did at one measurement, or in one interval of a recording of days.
// Pressure, Throttled and Waiting can be Unknown.
type Sample struct {
	At        time.Duration // since the recording's start: of the measurement, or of the interval's begin
	CPU, Peak float32       // CPUs: the mean, and the highest measurement
	Pressure  float32       // share of time, 0 to 1, in which some task waited for a CPU
	Throttled float32       // share of quota periods that were throttled, 0 to 1
	Waiting   float32       // mean number of threads that were ready to run and did not
	Anon      float32       // bytes of anonymous memory: the highest
	Cache     float32       // bytes of page cache; of a recording of days, only what belongs to the working set
}

// Track is what one container did while it was measured.
type Track struct {
	Container
	Samples []Sample // in the order of time
}

// Recording is a parsed recording.
type Recording struct {
	Machine    *topology.Machine
	Start, End time.Time
	Interval   time.Duration // of the samples, which are means; 0 for single measurements
	Tracks     []Track       // each container once, in the order of their appearance
}

var errNoMachine = errors.New("there is no machine in it: a recording begins with one (see sluice record)")

// Read parses a recording of either form. What a recorder was writing when it was killed, an
// incomplete last line or block, is left out.
func Read(r io.Reader) (*Recording, error) {
	buffered := bufio.NewReader(r)
	// What is too short for the mark has none.
	if begin, _ := buffered.Peek(len(family)); IsDays(begin) {
		return readDays(buffered)
	}
	return readLines(buffered)
}

// IsDays reports whether a file with that beginning is a recording of days, of any version.
func IsDays(begin []byte) bool { return bytes.HasPrefix(begin, []byte(family)) }

// Is reports whether a file with that beginning is a recording of either form.
func Is(begin []byte) bool { return IsDays(begin) || bytes.HasPrefix(begin, []byte(`{"machine":{`)) }

// reader collects a recording.
type reader struct {
	Recording
	byID map[string]int // index in Tracks, by ID; in a recording of days, whose IDs are short, with the ref
}

func newReader() *reader { return &reader{byID: map[string]int{}} }

// track returns the track of a container, which it begins if there is none.
func (in *reader) track(id string, c Container) *Track {
	at, known := in.byID[id]
	if !known {
		at = len(in.Tracks)
		in.byID[id] = at
		in.Tracks = append(in.Tracks, Track{Container: c})
	}
	return &in.Tracks[at]
}
