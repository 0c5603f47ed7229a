package status

import "time"

// Schema is the version of the shape of what is served: it grows where a field changes
// its meaning or goes, and stays where one is added.
const Schema = 1

// DefaultSocket is where a plugin serves its status unless told otherwise.
const DefaultSocket = "/run/sluice/status.sock"

// Build is what runs.
type Build struct {
	Version  string `json:"version"`            // "v1.2.3"
	Revision string `json:"revision,omitempty"` // of the source
	Go       string `json:"go"`                 // the compiler
	HostRoot string `json:"hostRoot,omitempty"` // the host's root folder as the plugin sees it: "/", "/host"
}

// Config is the configuration in force.
type Config struct {
	File    string    `json:"file,omitempty"`    // "" where the runtime or nobody gave one
	Hash    string    `json:"hash"`              // of its text, SHA-256 in hex; "" the shipped defaults
	Loaded  time.Time `json:"loaded"`            // when it came into force
	Reloads int       `json:"reloads"`           // since the start
	Refused int       `json:"refused"`           // of these
	Problem string    `json:"problem,omitempty"` // why the newest file is not in force
}

// Feature is something that the kernel, the runtime or the hardware has or lacks.
type Feature struct {
	Name  string `json:"name"`           // "cpu.burst"
	State string `json:"state"`          // "supported", "unsupported" or "inconclusive"
	File  string `json:"file,omitempty"` // that is it on this kernel
	Why   string `json:"why,omitempty"`  // where it is not supported
}

// Handler is how long the runtime waited for answers to one kind of event.
type Handler struct {
	Event  string        `json:"event"`    // "CreateContainer"
	Counts []uint64      `json:"counts"`   // by LatencyBounds, the last one is above all of them; not cumulative
	Sum    time.Duration `json:"sumNanos"` // of all
}

// LatencyBounds are the upper bounds of a Handler's counts.
func LatencyBounds() []time.Duration {
	return []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	}
}

// KnobErrors is how often the kernel refused a setting with an error.
type KnobErrors struct {
	Knob  string `json:"knob"`  // "cpu.quota"
	Errno string `json:"errno"` // "EBUSY"; "other" where it was none of the kernel's
	N     int    `json:"n"`     // how often
}
