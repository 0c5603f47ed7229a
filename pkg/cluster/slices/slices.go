// Package slices decides what a node publishes in its ResourceSlices: devices, with the CPUs that
// resource claims can have there.
package slices

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/claim"
	"github.com/sluice-dev/sluice/topology"
)

// Device is a NUMA node or an L3 domain, which several claims share, or a core, which one claim has.
type Device struct {
	claim.Domain
	CPUs           int    // CPUs that claims can have together, at least ThreadsPerCore
	ThreadsPerCore int    // a claim has a multiple of them
	NUMANode       int    // None if it has CPUs of several
	L3             int    // lowest CPU of its L3 domain; None if it has CPUs of several
	L3Bytes        int64  // size of the largest L3 cache; 0 if unknown
	CoreKind       string // "performance" or "efficiency"
	Distances      string // from its NUMA node to all, as "10 21"; "" if unknown or too long
}

// None stands for a number that a device does not have.
const None = topology.None

// Shared reports whether several claims can have CPUs of the device.
func (d Device) Shared() bool { return d.Kind != claim.Core }

// MostInSlice is how many devices a ResourceSlice may have (ResourceSliceMaxDevices of Kubernetes).
const MostInSlice = 128

// maxText is how many bytes an attribute may have (DeviceAttributeMaxValueLength of Kubernetes).
const maxText = 64

// Devices lists what a node has for claims, by its plugin's status, in the order of the plugin.
func Devices(c *status.Claims) []Device {
	if c == nil {
		return nil
	}
	var devices []Device
	for i := range c.Devices {
		from := &c.Devices[i]
		core := max(1, from.ThreadsPerCore)
		d := Device{Domain: from.Device, CPUs: from.CPUs / core * core, ThreadsPerCore: core, NUMANode: None, L3: from.L3, L3Bytes: from.L3Bytes, CoreKind: from.CoreKind}
		if from.Nodes.Size() == 1 {
			d.NUMANode = from.Nodes.First()
			if text := strings.Trim(fmt.Sprint(from.Distances), "[]"); len(text) <= maxText {
				d.Distances = text
			}
		}
		if d.CPUs > 0 {
			devices = append(devices, d)
		}
	}
	return devices
}

// calm is for how long an object stays as it is before it offers more. Each change costs the API server
// and the scheduler of a large cluster something.
const calm = 20 * time.Second

// Calm reports whether an object that was published so long ago may offer more.
func Calm(since time.Duration) bool { return since >= calm || since < 0 }

// Due reports whether devices are to be published in place of others that have been published for so
// long. What a node no longer has goes at once.
func Due(published, now []Device, since time.Duration) bool {
	if slices.Equal(published, now) {
		return false
	}
	return Calm(since) || falls(published, now)
}

// falls reports whether some device has fewer CPUs than before, or is gone.
func falls(before, now []Device) bool {
	return slices.ContainsFunc(before, func(b Device) bool {
		i := slices.IndexFunc(now, func(d Device) bool { return d.Domain == b.Domain })
		return i < 0 || now[i].CPUs < b.CPUs
	})
}
