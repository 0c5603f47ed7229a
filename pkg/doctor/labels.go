package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// Label is one thing that a node has, as a label of its Node object.
type Label struct{ Name, Value string }

// labelPrefix is that of all labels.
const labelPrefix = "feature.sluice.dev/"

// Labels lists what the node has that pods may choose nodes by, in the order of the names. What the node lacks,
// or what could not be tried, has no label. It reads the host's files, and of the facts what was probed.
func Labels(f *Facts) []Label {
	n := &node{Facts: f}
	n.mounts, n.mountsErr = n.readMounts()
	n.machine, n.machineErr = sysfs.Read(f.Host)
	var all []Label
	is := func(name, value string) { all = append(all, Label{labelPrefix + name, value}) }
	has := func(name string, yes bool) {
		if yes {
			is(name, "true")
		}
	}
	if cpu := n.hierarchy("cpu"); cpu != nil && cpu.v2() {
		is("cgroup-version", "2")
	} else if cpu != nil {
		is("cgroup-version", "1")
	}
	if n.machine != nil {
		nodes, smt := 0, false
		for i := range n.machine.Nodes {
			if !n.machine.Nodes[i].CPUs.IsEmpty() {
				nodes++
			}
		}
		for i := range n.machine.Cores {
			smt = smt || n.machine.Cores[i].CPUs.Size() > 1
		}
		is("numa-nodes", strconv.Itoa(nodes))
		has("smt", smt)
	}
	has("core-scheduling", f.CoreSched == knobs.Supported)
	has("psi", n.text("proc/pressure/memory") != "")
	has("swap", strings.Count(n.text("proc/swaps"), "\n") > 0)
	resources := n.resctrlResources()
	has("rdt-l3", slices.Contains(resources, "L3") || slices.Contains(resources, "L3CODE"))
	has("rdt-mb", slices.Contains(resources, "MB"))
	has("rdt-monitoring", slices.Contains(resources, "L3_MON"))
	if n.probed() {
		for name, knob := range map[string]knobs.Knob{
			"cpu-burst": knobs.Burst, "cpu-idle": knobs.Idle, "io-max": knobs.IOMax,
			"memory-low": knobs.MemoryLow, "memory-min": knobs.MemoryMin,
		} {
			has(name, f.Features.Has(knob))
		}
		has("group-identity", n.evaluate(n.identity()).Level == OK)
		has("io-weight", f.Features.Has(knobs.IOWeight) || f.Features.Has(knobs.BFQWeight))
		has("memory-high", n.evaluate(n.high()).Level == OK)
		has("memory-reclaim", f.Features.Reclaim)
		has("memory-watermark", f.Features.Has(knobs.WmarkRatio))
	}
	slices.SortFunc(all, func(x, y Label) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// resctrlResources are the resources of the mounted resctrl, as its folder info names them.
func (n *node) resctrlResources() []string {
	for i := range n.mounts {
		if m := &n.mounts[i]; m.kind == "resctrl" {
			return n.names(path.Join(m.dir, "info"))
		}
	}
	return nil
}

// FeatureFile is the text of a file in which Node Feature Discovery finds labels until that time, in
// /etc/kubernetes/node-feature-discovery/features.d (its package source/local).
func FeatureFile(labels []Label, until time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by sluice run --labels-file, which writes it anew every hour.\n# +expiry-time=%s\n", until.UTC().Format(time.RFC3339))
	for _, l := range labels {
		fmt.Fprintf(&b, "%s=%s\n", l.Name, l.Value)
	}
	return b.String()
}
