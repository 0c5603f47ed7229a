package node

import (
	"fmt"
	"strings"
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

// Request reads a container's request.
func (n *Node) Request(cfg *config.Config, c *Container) (workload.Request, error) {
	facts := n.Facts()
	c.Allocated = n.Granted(c)
	facts.Granted = c.Allocated
	claimed, err := n.claimed(c)
	if err != nil {
		return workload.Request{}, err
	}
	facts.Claimed = claimed
	r, warnings, err := cfg.Request(facts, c.Pod, &c.Container)
	n.noteCut(c, warnings)
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
	if len(c.Claims) > 0 {
		if !r.Class.Pinned() || r.CPUs != claimed.CPUs {
			return r, fmt.Errorf("%s: the container cannot have these %d CPUs: %s", claimed.Refs, claimed.CPUs, strings.Join(c.Warnings, "; "))
		}
		r.Claims, r.CPUSet, r.SMT, r.NUMA, r.L3 = c.Claims, cpuset.Set{}, workload.SMTFullCore, workload.NUMAPrefer, workload.L3Pack
		r.Near, r.Exclusive = workload.Near{}, workload.NotExclusive
	}
	if c.Scored && !c.Allocated.Container && r.OOMScore.Set && r.OOMScore.Value == c.OOMScoreAdj && c.Pod.QoS() == workload.Burstable {
		r.Memory = 0 // unknown: Sluice's own OOM score would be its source
	}
	if n.Neighbour(peers.MemoryManager) != nil {
		r.MemoryNodes = workload.MemoryNodes{Policy: workload.MemoryAny}
	}
	if r.Near.OwnDevices {
		n.findDevices(c, &r)
	}
	return r, nil
}

// claimed returns what the container's resource claims reserve.
func (n *Node) claimed(c *Container) (all annotation.Claimed, err error) {
	for i, id := range c.Claims {
		h, ok := n.Ledger.Claim(id)
		switch {
		case !ok:
			return all, fmt.Errorf("the CPUs of claim device %s are not reserved here: the kubelet has not prepared its claim, or has ended it", id)
		case i > 0 && h.Request.Class != all.Class:
			return all, fmt.Errorf("%s is of class %s, and %s of class %s: a container's claims must all be of one class", h.Ref, h.Request.Class, all.Refs, all.Class)
		case i > 0:
			all.Refs += " and "
		}
		all.Refs, all.Class, all.CPUs = all.Refs+h.Ref, h.Request.Class, all.CPUs+h.Request.CPUs
	}
	return all, nil
}

// RequestBy reads a container's request by a configuration that need not be in force, as if the
// container was running already: a request that would be refused becomes one for shared CPUs.
func (n *Node) RequestBy(cfg *config.Config, c *Container) (revised placement.RevisedRequest, warnings []string) {
	twin := *c
	twin.Warnings = nil
	r, err := n.Request(cfg, &twin)
	if err != nil {
		twin.Warnings = append(twin.Warnings, err.Error())
		r = n.Sharing(&twin)
	}
	revised.Request = r
	if err := n.MayPin(&twin, r); err != nil {
		revised.Shares = err.Error()
	}
	return revised, twin.Warnings
}

// Sharing is the request for shared CPUs of a container whose own request can't be met.
func (n *Node) Sharing(c *Container) workload.Request {
	requests := workload.Requested(c.Pod, &c.Container, &c.Allocated, n.Facts().Memory)
	return workload.Request{Class: workload.LS, Milli: requests.CPU, Memory: requests.Memory, From: requests.From}
}

// MayPin returns an error if this node can't pin the container.
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

// findDevices finds the CPUs that are local to the container's devices.
func (n *Node) findDevices(c *Container, r *workload.Request) {
	for _, d := range c.Devices {
		address, err := sysfs.DeviceAddress(n.Host, d.Block, d.Major, d.Minor)
		if err != nil {
			continue // it is no PCI device (/dev/null, for example)
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

// Granted is the kubelet's grant to a container, by the kubelet's record. For a container of a
// manifest, which doesn't run, it is what the kubelet would grant if it keeps a record.
func (n *Node) Granted(c *Container) workload.Granted {
	if c.Granted.Pod && n.Grants.Known() {
		return c.Granted
	}
	return n.Grants.Of(c.Pod.UID, c.Name)
}

// AwaitGrant waits until the kubelet's record is new enough for a container that is being
// created. The kubelet writes a pod's entry before it asks for the pod's sandbox, so there is
// no need to read the file for a known pod.
func (n *Node) AwaitGrant(c *Container) {
	if !n.Granted(c).Pod {
		n.Grants.Refresh(GrantWait)
	}
}

// noteCut logs and counts, once, that a container's annotation claims more than the kubelet has
// granted.
func (n *Node) noteCut(c *Container, warnings []annotation.Warning) {
	for _, w := range warnings {
		if known := n.Containers[c.ID]; w.Cut && known != nil && known.Cut == "" {
			known.Cut, c.Cut = w.Text, w.Text
			n.Counters.GrantsCut++
			n.Log.WithFields(logrus.Fields{"container": c.Ref, "source": w.Source}).Warn("Grant cut: " + w.Text)
		}
	}
}

const (
	// GrantWait is how long an event waits for the kubelet's record. The kubelet wrote it just
	// before, so it is in memory and is read within milliseconds. If the disk hangs, the event
	// continues with what is known, and the periodic pass corrects it.
	GrantWait = 50 * time.Millisecond
	// GrantWaitAll is how long an event about all containers waits for the kubelet's record;
	// the runtime times out after 2 s.
	GrantWaitAll = 500 * time.Millisecond
)
