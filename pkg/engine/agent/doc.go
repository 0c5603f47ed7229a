// Package agent is where the plugin's events come together. It owns the node's state
// (pkg/engine/node) and the parts of the engine that act on it, and runs every event in one
// goroutine (pkg/engine/eventloop): requests of the container runtime, hotplug, samples of the
// control loop, the periodic pass, reloads, and questions for the status. Nothing else touches
// that state, so none of it has a lock. Any goroutine may call the exported methods.
//
// A request of the runtime goes through the parts in a fixed order. The request is read from the
// pod's annotations; the ledger (pkg/decide/placement) places it; pkg/engine/cpusets moves all
// others off its CPUs, in the kernel; the reply carries what the runtime itself can set
// (pkg/engine/runtimerecord); pkg/engine/podsettings declares the remaining settings, which
// pkg/engine/reconcile writes. When the container starts, all of it is written again, and the
// kernel is asked whether the others have left.
//
// What may take long never runs in the loop: writes that make the kernel reclaim or migrate
// memory, updates of the runtime, evictions and files on disks run in goroutines that post their
// results as events. Run waits for them when its context ends.
//
// A panic fails its event alone. Events that change the ledger undo what they have not finished:
// a container that can't be created leaves no trace, a refused resize leaves the old grant, a
// failed Synchronize leaves the state before it, and a configuration that can't be taken over
// leaves the one before in force.
package agent
