package render

import (
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// cpuList formats a set with its size; it returns empty for the empty set.
func cpuList(cpus cpuset.Set, empty string) string {
	if cpus.IsEmpty() {
		return empty
	}
	return cpus.String() + " (" + humanize.Count(cpus.Size(), "CPU") + ")"
}

// setOr formats a set; it returns empty for the empty set.
func setOr(set cpuset.Set, empty string) string {
	if set.IsEmpty() {
		return empty
	}
	return set.String()
}
