package knobs

// Support is the result of probing a knob.
type Support uint8

// These are the results of a probe.
const (
	Inconclusive Support = iota // the probe itself failed
	Supported
	Unsupported
)

var supportNames = [...]string{"inconclusive", "supported", "unsupported"}

func (s Support) String() string { return supportNames[s] }

// MarshalText writes the answer.
func (s Support) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Feature says whether and how this kernel supports a knob.
type Feature struct {
	State Support `json:"state"`
	File  string  `json:"file,omitempty"` // name in the cgroup's folder: "cpu.cfs_burst_us"
	V2    bool    `json:"v2"`             // whether its controller is on cgroup v2
	Why   string  `json:"why,omitempty"`  // why the knob is not supported or the probe failed
	Cause Cause   `json:"cause,omitempty"`
}

// Cause is why a knob that the kernel could have is not supported, if an administrator can
// change that on this node; it is empty otherwise.
type Cause string

// The causes.
const (
	SwitchedOff Cause = "switched-off" // by a switch of the kernel
	NotEnabled  Cause = "not-enabled"  // the controller is not enabled for the cgroups below the root
)

// Features is what this kernel supports.
type Features struct {
	Knobs [Knobs]Feature

	// BurstOverQuota is set if the burst may be larger than the quota, as with the older patch
	// of vendor kernels.
	BurstOverQuota bool
	// QoSLevels is set if cpu.qos_level accepts 1 and 2 besides -1 and 0 (openEuler's
	// multilevel).
	QoSLevels bool
	// Reclaim is set if memory.reclaim exists (cgroup v2, Linux 5.19).
	Reclaim bool
}

// Has reports whether a knob works.
func (f *Features) Has(k Knob) bool { return f.Knobs[k].State == Supported }
