package status

import (
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Schema is the version of the shape of what is served: it grows where a field changes
// its meaning or goes, and stays where one is added.
const Schema = 2

// DefaultSocket is where a plugin serves its status unless told otherwise.
const DefaultSocket = "/run/sluice/status.sock"

// Build identifies the running program.
type Build struct {
	Version  string `json:"version"`            // Version of the plugin, for example "v1.2.3".
	Revision string `json:"revision,omitempty"` // Revision of the source; absent if it is unknown.
	Go       string `json:"go"`                 // Version of the Go compiler.
	HostRoot string `json:"hostRoot,omitempty"` // Host's root folder as the plugin sees it, for example "/" or "/host"; absent if it is unknown.
}

// Config is the configuration in force.
type Config struct {
	File     string    `json:"file,omitempty"`    // Path of the configuration file; absent if the runtime supplied the configuration or there is none.
	Hash     string    `json:"hash"`              // SHA-256 of the file's text in hex; empty for the default configuration.
	LoadedAt time.Time `json:"loadedAt"`          // Time at which this configuration came into force.
	Reloads  int       `json:"reloads"`           // Number of times a changed file was read since the start.
	Refused  int       `json:"refused"`           // Number of changed files that were refused since the start.
	Problem  string    `json:"problem,omitempty"` // Why the newest file is not in force; absent if it is.

	KeepWeights bool `json:"keepWeights,omitempty"` // Whether pods' CPU weights stay as they are, because the kubelet takes them for requests.

	Parts []ConfigPart `json:"parts,omitempty"` // Parts of the fleet's policy for this node, the most important last; absent if there are none.
}

// ConfigPart is a part of the configuration that the fleet's policy has for this node.
type ConfigPart struct {
	Name    string   `json:"name"`              // Name of the part's ConfigMap.
	Keys    []string `json:"keys,omitempty"`    // Keys of the configuration whose values come from this part; absent if it has none.
	Problem string   `json:"problem,omitempty"` // Why the part is left out, or its earlier text stays in force; absent if it is as the ConfigMap has it.
}

// Feature is something that the kernel, the runtime or the hardware has or lacks.
type Feature struct {
	Name  string       `json:"name"`            // Name of the feature, for example "cpu.burst".
	State FeatureState `json:"state"`           // Result of the probe.
	File  string       `json:"file,omitempty"`  // Kernel file that provides the feature; absent if there is none.
	Why   string       `json:"why,omitempty"`   // Why the feature is not supported; absent if it is.
	Cause knobs.Cause  `json:"cause,omitempty"` // What keeps a kernel that could have the feature from having it; absent if nothing on this node can mend it.
}

// FeatureState is what a probe has found out about a feature.
type FeatureState string

// The states of features.
const (
	FeatureSupported    FeatureState = "supported"
	FeatureUnsupported  FeatureState = "unsupported"
	FeatureInconclusive FeatureState = "inconclusive" // the probe itself failed
)

// Handler is the latency of the plugin's answers to one kind of event.
type Handler struct {
	Event  string        `json:"event"`    // Event of the runtime, for example "CreateContainer".
	Counts []uint64      `json:"counts"`   // Number of answers by upper bound of their latency; the last is above all bounds; not cumulative.
	Sum    time.Duration `json:"sumNanos"` // Sum of all latencies in nanoseconds.
}

// LatencyBounds are the upper bounds of a Handler's counts.
func LatencyBounds() []time.Duration {
	return []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
		10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
	}
}

// KnobErrors is the number of writes to a knob that the kernel refused with one error.
type KnobErrors struct {
	Knob  string `json:"knob"`  // Kernel's control, for example "cpu.quota".
	Errno string `json:"errno"` // Kernel's error, for example "EBUSY"; "other" if it was not an error number.
	Count int    `json:"count"` // Number of refused writes since the plugin started.
}
