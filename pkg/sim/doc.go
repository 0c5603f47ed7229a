// Package sim runs the agent, unchanged, on a simulated node in virtual time: its
// cgroups are values in memory, its CPUs and memory are a model that is stepped by
// the loop's fast interval, and its pods come from a scenario or a recording. The
// same scenario and seed give the same output.
//
// The model is made to compare policies with each other, not to foretell a node: it
// has no single task and no single request, only rates. What of it is assumed rather
// than measured is said beside each constant.
package sim
