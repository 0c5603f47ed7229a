// Package claim holds the messages between sluice-kube and a node about resource claims of
// Kubernetes (dynamic resource allocation, DRA), and the CDI specs that stand for them. sluice-kube
// sends what the scheduler has allocated to a claim, and the node reserves it. Both sides check what
// they receive.
package claim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Driver is the name of Sluice's DRA driver.
const Driver = "cpus.sluice.dev"

// Kind is the CDI kind of the devices that stand for reserved CPUs.
const Kind = "cpus.sluice.dev/claim"

// These constants bound a claim.
const (
	// MaxMessage bounds a claim, and a CDI spec, in bytes.
	MaxMessage = 32 << 10
	maxDevices = 32 // as many results as Kubernetes allows in an allocation (AllocationResultsMaxSize)
	maxName    = 253
	maxUID     = 64
	maxCPUs    = 1 << 13
)

// Claim is a resource claim that the scheduler has allocated to this node.
type Claim struct {
	UID       string   `json:"uid"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Devices   []Device `json:"devices"`
}

// Device is a part of a claim: CPUs of one domain. The parts of a claim can be given to different
// containers.
type Device struct {
	Domain Domain         `json:"device"`         // written as the name of its device
	CPUs   int            `json:"cpus,omitempty"` // number of CPUs; 0 for all of a core, until it is reserved
	Class  workload.Class `json:"class"`          // LSE or LSR
	// Reserved are the CPUs that the node has reserved, in the specs on its disk alone.
	Reserved cpuset.Set `json:"reserved,omitzero"`
}

// Ref names the claim in messages.
func (c *Claim) Ref() string { return "claim " + c.Namespace + "/" + c.Name }

// ID is the name of one of the claim's devices: unique on the node and for all time.
func (c *Claim) ID(device int) string { return c.UID + "-" + strconv.Itoa(device) }

// IsOf reports whether an ID is that of a device of the claim with that UID.
func IsOf(id, uid string) bool {
	number, ok := strings.CutPrefix(id, uid+"-")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// CDIName is the name of the CDI device that stands for a device with that ID.
func CDIName(id string) string { return Kind + "=" + id }

// IDOf returns the ID of the device that a CDI device of a container stands for. ok is false for
// devices of others.
func IDOf(cdiName string) (id string, ok bool) {
	id, ok = strings.CutPrefix(cdiName, Kind+"=")
	return id, ok && isName(id, maxUID+8)
}

// Decode reads a claim and checks it.
func Decode(data []byte) (*Claim, error) {
	if len(data) > MaxMessage {
		return nil, fmt.Errorf("a claim has %d bytes, at most %d are allowed", len(data), MaxMessage)
	}
	var c Claim
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("a claim is a JSON object with uid, namespace, name and devices: %w", err)
	}
	return &c, c.check()
}

func (c *Claim) check() error {
	switch {
	case !IsUID(c.UID):
		return fmt.Errorf("claim: uid %q: it must be 1 to %d lower-case letters, digits or '-'", clip(c.UID), maxUID)
	case !isName(c.Namespace, maxName) || !isName(c.Name, maxName):
		return fmt.Errorf("claim %s: %q and %q must be a namespace and the name of a Kubernetes object", c.UID, clip(c.Namespace), clip(c.Name))
	case len(c.Devices) == 0 || len(c.Devices) > maxDevices:
		return fmt.Errorf("%s: it has %d devices, and must have 1 to %d", c.Ref(), len(c.Devices), maxDevices)
	}
	for i, d := range c.Devices {
		switch {
		case d.Domain.Kind == 0:
			return fmt.Errorf("%s: devices[%d].device is missing: it must be the name of a device, as numa0", c.Ref(), i)
		case d.CPUs < 0 || d.CPUs > maxCPUs || d.CPUs == 0 && d.Domain.Kind != Core:
			return fmt.Errorf("%s: devices[%d].cpus %d: it must be 1 to %d", c.Ref(), i, d.CPUs, maxCPUs)
		case !d.Class.Pinned():
			return fmt.Errorf("%s: devices[%d].class %s: it must be LSE or LSR", c.Ref(), i, d.Class)
		}
	}
	return nil
}

// IsUID reports whether a text can be the UID of a claim. It is safe as a part of a file's name.
func IsUID(text string) bool { return isName(text, maxUID) && !strings.Contains(text, ".") }

func isName(text string, most int) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-."
	return text != "" && len(text) <= most && strings.Trim(text, letters) == "" && text != "." && text != ".."
}

func clip(text string) string {
	const most = 64
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
