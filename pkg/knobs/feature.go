package knobs

// Support is what probing found out about a knob.
type Support uint8

// The answers of a probe.
const (
	Inconclusive Support = iota // the probe itself failed
	Supported
	Unsupported
)

var supportNames = [...]string{"inconclusive", "supported", "unsupported"}

func (s Support) String() string { return supportNames[s] }

// MarshalText writes the answer.
func (s Support) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Feature is whether and how this kernel has a knob.
type Feature struct {
	State Support `json:"state"`
	File  string  `json:"file,omitempty"` // in the cgroup's folder: "cpu.cfs_burst_us"
	V2    bool    `json:"v2"`             // its controller is on cgroup v2
	Why   string  `json:"why,omitempty"`  // where it is not supported, or the probe failed
	Cause Cause   `json:"cause,omitempty"`
}

// Cause is why a knob that the kernel could have isn't supported, where somebody can mend
// that on this node; "" else.
type Cause string

// The causes.
const (
	SwitchedOff Cause = "switched-off" // by a switch of the kernel's
	NotEnabled  Cause = "not-enabled"  // its controller, for the cgroups below the root
)

// Features is what this kernel has.
type Features struct {
	Knobs [Knobs]Feature

	// BurstOverQuota: the burst may be larger than the quota, as with the older
	// patch of vendor kernels.
	BurstOverQuota bool
	// QoSLevels: cpu.qos_level takes 1 and 2 beside -1 and 0 (openEuler's multilevel).
	QoSLevels bool
	// Reclaim: memory.reclaim is there (v2, 5.19).
	Reclaim bool
}

// Has reports whether a knob works.
func (f *Features) Has(k Knob) bool { return f.Knobs[k].State == Supported }
