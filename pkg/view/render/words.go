package render

import (
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// cpuList is a set with its size; the empty set is what empty says.
func cpuList(cpus cpuset.Set, empty string) string {
	if cpus.IsEmpty() {
		return empty
	}
	return cpus.String() + " (" + humanize.Count(cpus.Size(), "CPU") + ")"
}

// setOr is a set in short; the empty set is what empty says.
func setOr(set cpuset.Set, empty string) string {
	if set.IsEmpty() {
		return empty
	}
	return set.String()
}
