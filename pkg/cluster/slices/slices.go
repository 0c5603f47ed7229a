// Package slices decides what a node publishes in its ResourceSlice: a device for each NUMA node, with
// the CPUs that resource claims can have there.
package slices

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
)

// Device is a NUMA node as a device that several claims share.
type Device struct {
	Node           int    // number of the NUMA node
	CPUs           int    // CPUs that claims can have together, at least ThreadsPerCore
	ThreadsPerCore int    // a claim has a multiple of them
	L3Bytes        int64  // size of the largest L3 cache; 0 if unknown
	CoreKind       string // "performance" or "efficient"
}

const prefix = "numa"

// Name is the device's name in the ResourceSlice.
func (d Device) Name() string { return prefix + strconv.Itoa(d.Node) }

// NodeOf returns the NUMA node of the device with that name.
func NodeOf(name string) (node int, ok bool) {
	number, found := strings.CutPrefix(name, prefix)
	node, err := strconv.Atoi(number)
	return node, found && err == nil && node >= 0 && strconv.Itoa(node) == number
}

// most is how many devices a ResourceSlice may have (ResourceSliceMaxDevices of Kubernetes).
const most = 128

// Devices lists what a node has for claims, by its plugin's status, in the order of the nodes.
func Devices(c *status.Claims) []Device {
	if c == nil {
		return nil
	}
	var devices []Device
	for _, n := range c.Nodes {
		core := max(1, n.ThreadsPerCore)
		d := Device{Node: n.Node, CPUs: n.CPUs / core * core, ThreadsPerCore: core, L3Bytes: n.L3Bytes, CoreKind: n.CoreKind}
		if d.CPUs > 0 && len(devices) < most {
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
		i := slices.IndexFunc(now, func(d Device) bool { return d.Node == b.Node })
		return i < 0 || now[i].CPUs < b.CPUs
	})
}
