// Package sim runs the unchanged agent on a simulated node in virtual time. The node's cgroups are
// values in memory, its CPUs and memory are a model that takes one step per fast interval of the
// loop, and its pods come from a scenario or a recording. The same scenario and seed give the same
// output.
//
// The model serves to compare policies with each other, not to predict a node: it has no tasks and
// no requests, only rates. Each constant that is assumed rather than measured says so.
package sim
