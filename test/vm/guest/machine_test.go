package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestMachine checks the assumptions of the other tests: the sockets, nodes and threads that the
// host has asked for, and cgroup v2 alone with its controllers.
func TestMachine(t *testing.T) {
	var sockets, dies, cores int
	if _, err := fmt.Sscanf(os.Getenv("SLUICE_VM"), "%dx%dx%d", &sockets, &dies, &cores); err != nil {
		t.Fatal(err)
	}
	if got, want := online(t, "cpu"), cpuset.Range(0, sockets*dies*cores*2-1); got != want {
		t.Errorf("CPUs %s are online, want %s", got, want)
	}
	if got, want := online(t, "node"), cpuset.Range(0, sockets*dies-1); got != want {
		t.Errorf("NUMA nodes %s are online, want %s", got, want)
	}
	for node := range sockets * dies {
		first := node * cores * 2
		if got, want := set(t, nodeFile(node, "cpulist")), cpuset.Range(first, first+cores*2-1); got != want {
			t.Errorf("node %d has CPUs %s, want %s", node, got, want)
		}
		topology := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology", first)
		if got, want := set(t, filepath.Join(topology, "thread_siblings_list")), cpuset.Range(first, first+1); got != want {
			t.Errorf("the threads beside CPU %d are %s, want %s", first, got, want)
		}
		if got, want := read(t, filepath.Join(topology, "physical_package_id")), fmt.Sprint(node/dies); got != want {
			t.Errorf("CPU %d is in package %s, want %s", first, got, want)
		}
		for other, text := range strings.Fields(read(t, nodeFile(node, "distance"))) {
			want := "21"
			switch {
			case other == node:
				want = "10"
			case other/dies == node/dies:
				want = "12"
			}
			if text != want {
				t.Errorf("node %d is %s from node %d, want %s", other, text, node, want)
			}
		}
	}
	mounts := read(t, "/proc/mounts")
	if strings.Contains(mounts, " cgroup ") || !strings.Contains(mounts, " /sys/fs/cgroup cgroup2 ") {
		t.Errorf("cgroup v2 is not alone: %s", mounts)
	}
	got := strings.Fields(read(t, "/sys/fs/cgroup/cgroup.subtree_control")) // an earlier test's runtime may have added more
	for _, controller := range []string{"cpuset", "cpu", "io", "memory", "pids"} {
		if !slices.Contains(got, controller) {
			t.Errorf("children have the controllers %v, and not %s", got, controller)
		}
	}
}
