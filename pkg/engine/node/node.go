// Package node holds what the parts of the engine share: the configuration in force, who
// holds which CPUs, the containers that the runtime has told of, who else sets the same
// things, and what Sluice may therefore change. One goroutine, the agent's loop, owns a
// Node and all that is reached through it; nothing here locks.
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

// Node is what the parts of the engine share.
type Node struct {
	Inventory

	Config *config.Config // in force
	Host   fs.FS          // the host's root, for /sys, /proc and the kubelet's state
	Kernel Kernel         // nil without cgroups
	QoS    qos.Node       // what this kernel has for settings of pods
	HasRDT bool           // the host has a resctrl file system that Sluice can write
	Log    logrus.FieldLogger
	Clock  func() time.Time // nil: the real one

	Ledger     *placement.Ledger     // who holds which CPUs and memory nodes
	Journal    *journal.Book         // what the kernel had before Sluice
	Reconciler *reconcile.Reconciler // of the settings of cgroups
	Grants     *grantrecord.Watcher  // what the kubelet has granted, by its own record
	Neighbours []peers.Neighbour     // who else sets what Sluice sets
	Runtime    status.Runtime        // the container runtime, as it introduced itself
	Counters   status.Counters

	Synced        bool  // a Synchronize has told what runs here
	MachineMemory int64 // bytes, by /proc/meminfo when it was read last; 0 not known

	// Spawn runs what may take long in a goroutine that the agent waits for at its end.
	Spawn func(work func())
	// Post runs an event in the agent's loop, without waiting for it.
	Post func(name string, event func())

	barred   cpuset.Set        // CPUs that the cgroup of all pods lacks, as with systemd's AllowedCPUs=
	barredOf *placement.Ledger // that knows them

	factsOf      *topology.Machine
	machineFacts annotation.Facts
}

// Now is the time by the node's clock.
func (n *Node) Now() time.Time {
	if n.Clock != nil {
		return n.Clock()
	}
	return time.Now()
}

// Aside does work that may block outside the loop, and what follows from it in the loop.
// With a clock of the node's own, where nothing blocks, it does both at once, so that the
// order of events does not depend on the machine.
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

// LedgerState identifies what the ledger says: which ledger it is, and its version. Who derives
// something from the ledger keeps the state that it was derived from, and compares. The zero
// value is the state of no ledger.
type LedgerState struct {
	ledger  *placement.Ledger
	version uint64
}

// LedgerState is the present state of the ledger.
func (n *Node) LedgerState() LedgerState { return LedgerState{n.Ledger, n.Ledger.Version()} }
