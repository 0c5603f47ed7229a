package node

import (
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Request reads what the container asks for.
func (n *Node) Request(cfg *config.Config, c *Container) (workload.Request, error) {
	facts := n.Facts()
	c.Allocated = n.Granted(c)
	facts.Granted = c.Allocated
	r, warnings, err := cfg.Request(facts, c.Pod, &c.Container)
	n.tellCut(c, warnings)
	c.Warnings = c.Warnings[:0]
	for _, w := range warnings {
		c.Warnings = append(c.Warnings, w.Text)
	}
	if text := c.Refused.Warning(); text != "" {
		c.Warnings = append(c.Warnings, text)
	}
	if err != nil {
		return r, err
	}
	if c.Scored && !c.Allocated.Container && r.OOMScore.Set && r.OOMScore.Value == c.OOMScoreAdj && c.Pod.QoS() == workload.Burstable {
		r.Memory = 0 // unknown: it was inferred from Sluice's own score
	}
	if n.Neighbour(peers.MemoryManager) != nil {
		r.MemoryNodes = workload.MemoryNodes{Policy: workload.MemoryAny}
	}
	if r.Near.OwnDevices {
		n.findDevices(c, &r)
	}
	return r, nil
}

// RequestBy reads what a container asks for by a configuration that need not be in
// force, as if it was found: what would be refused shares.
func (n *Node) RequestBy(cfg *config.Config, c *Container) (asked placement.Asked, warnings []string) {
	twin := *c
	twin.Warnings = nil
	r, err := n.Request(cfg, &twin)
	if err != nil {
		twin.Warnings = append(twin.Warnings, err.Error())
		r = n.Sharing(&twin)
	}
	asked.Request = r
	if err := n.MayPin(&twin, r); err != nil {
		asked.Shares = err.Error()
	}
	return asked, twin.Warnings
}

// Sharing is the request of a container whose own can't be honoured.
func (n *Node) Sharing(c *Container) workload.Request {
	requests := workload.Requested(c.Pod, &c.Container, &c.Allocated, n.Facts().Memory)
	return workload.Request{Class: workload.LS, Milli: requests.CPU, Memory: requests.Memory, From: requests.From}
}

// MayPin refuses pins where they can't be kept.
func (n *Node) MayPin(c *Container, r workload.Request) error {
	if !r.Class.Pinned() {
		return nil
	}
	if n := n.Neighbour(peers.CPUManager); n != nil {
		return fmt.Errorf("class %s needs CPUs of its own, but %s: %s", r.Class, n.Response, n.Fix)
	}
	if c.Uncontrolled {
		return fmt.Errorf("class %s can't be kept inside a virtual machine (runtime handler %q): use LS or BE, or another runtime class", r.Class, c.Pod.RuntimeHandler)
	}
	return nil
}

// findDevices looks up which CPUs are local to the devices the container was given.
func (n *Node) findDevices(c *Container, r *workload.Request) {
	for _, d := range c.Devices {
		address, err := sysfs.DeviceAddress(n.Host, d.Block, d.Major, d.Minor)
		if err != nil {
			continue // no PCI device: /dev/null and the like
		}
		for i := range n.Ledger.Machine().Devices {
			if device := &n.Ledger.Machine().Devices[i]; device.Address == address {
				r.Near.CPUs = cpuset.Union(r.Near.CPUs, device.CPUs)
			}
		}
	}
	if r.Near.CPUs.IsEmpty() {
		c.Warnings = append(c.Warnings, "near device: none of the container's devices is a PCI device, so it is placed without")
	}
}

// Granted is what the kubelet has granted to a container, by its record, or would by a
// manifest where it keeps a record.
func (n *Node) Granted(c *Container) workload.Granted {
	if c.Granted.Pod && n.Grants.Known() {
		return c.Granted
	}
	return n.Grants.Of(c.Pod.UID, c.Name)
}

// AwaitGrant has the record be new enough for a container that is being created: the
// kubelet writes a pod's entry before it asks for the pod's sandbox, so a pod that is
// known needs no look at the file.
func (n *Node) AwaitGrant(c *Container) {
	if !n.Granted(c).Pod {
		n.Grants.Look(GrantWait)
	}
}

// tellCut logs and counts a container whose annotation claims more than the kubelet has
// granted, once.
func (n *Node) tellCut(c *Container, warnings []annotation.Warning) {
	for _, w := range warnings {
		if known := n.Containers[c.ID]; w.Cut && known != nil && !known.Cut {
			known.Cut, c.Cut = true, true
			n.Counters.GrantsCut++
			n.Log.WithFields(logrus.Fields{"container": c.Ref, "source": w.Source}).Warn("Grant cut: " + w.Text)
		}
	}
}

const (
	// GrantWait bounds how long an event waits for the record. The kubelet wrote it
	// just before, so that it is in memory and read within milliseconds; on a disk that
	// hangs the event goes on with what is known, and the pass catches up.
	GrantWait = 50 * time.Millisecond
	// GrantWaitAll bounds it where all containers are looked at; the runtime waits 2 s.
	GrantWaitAll = 500 * time.Millisecond
)
