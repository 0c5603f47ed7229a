// Package node holds the state that the parts of the engine share: the configuration in force,
// the ledger, the containers that the runtime has reported, the neighbours, and what Sluice may
// therefore change. One goroutine, the agent's event loop, owns a Node and all that is reached
// through it; nothing here locks.
package node

import (
	"io/fs"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/decide/qos"
	"github.com/sluice-dev/sluice/pkg/engine/grantrecord"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/engine/reconcile"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// Node is the state that the parts of the engine share.
type Node struct {
	Inventory

	Config *config.Config // the configuration in force
	Host   fs.FS          // the host's root, for /sys, /proc and the kubelet's state
	Kernel Kernel         // nil without cgroups
	QoS    qos.Node       // the kernel's features for settings of pods
	HasRDT bool           // the host has a resctrl file system that Sluice can write
	Log    logrus.FieldLogger
	Clock  func() time.Time // nil: the system's clock

	Ledger     *placement.Ledger     // the containers' CPUs and memory nodes
	Journal    *journal.Journal      // the originals of the kernel's knobs
	Reconciler *reconcile.Reconciler // writes the settings of cgroups
	Grants     *grantrecord.Watcher  // the kubelet's record of its grants
	Neighbours []peers.Neighbour     // other agents that set what Sluice sets
	Runtime    status.Runtime        // the container runtime, by its own description
	Counters   status.Counters

	Synced        bool  // the runtime has sent its list of containers
	MachineMemory int64 // in bytes, from /proc/meminfo at the last sample; 0 if unknown

	// Spawn runs slow work in a goroutine, which the agent waits for when it ends.
	Spawn func(work func())
	// Post runs an event in the agent's event loop, without waiting for it.
	Post func(name string, event func())

	barred   cpuset.Set        // CPUs that the cgroup of all pods lacks, such as with systemd's AllowedCPUs=
	barredOf *placement.Ledger // the ledger that has them

	factsOf      *topology.Machine
	machineFacts annotation.Facts
}

// Now is the present time of the node's clock.
func (n *Node) Now() time.Time {
	if n.Clock != nil {
		return n.Clock()
	}
	return time.Now()
}

// Aside runs work, which may block, in another goroutine, and then in the event loop. With a
// Clock, where nothing blocks, it runs both at once, so that the order of events does not
// depend on the machine.
func (n *Node) Aside(name string, work, then func()) {
	if n.Clock != nil {
		work()
		then()
		return
	}
	n.Spawn(func() {
		work()
		n.Post(name, then)
	})
}

// LedgerState identifies a state of the ledger: which ledger it is, and its version. Code that
// caches something derived from the ledger stores the state and compares it. The zero value is
// the state of no ledger.
type LedgerState struct {
	ledger  *placement.Ledger
	version uint64
}

// LedgerState is the present state of the ledger.
func (n *Node) LedgerState() LedgerState { return LedgerState{n.Ledger, n.Ledger.Version()} }
