package sysfs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

// tree returns a machine's tree, on disk if there are changes. A change replaces the content of
// each file whose name ends so, or adds a file; "-" removes files.
func tree(t testing.TB, text string, changes map[string]string) fs.FS {
	t.Helper()
	spec, err := synth.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) == 0 {
		return spec.FS()
	}
	dir := t.TempDir()
	if err := spec.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	for suffix, content := range changes {
		names := []string{filepath.Join(dir, suffix)}
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.HasSuffix(name, suffix) {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(names) > 1 {
			names = names[1:]
		}
		for _, name := range names {
			if content == "-" {
				err = os.Remove(name)
			} else if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
				err = os.WriteFile(name, []byte(content), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return os.DirFS(dir)
}

func sets(m *topology.Machine) map[string]string {
	lists := map[string][]string{
		"online": {m.Online.String()}, "offline": {m.Offline.String()},
		"isolated": {m.Isolated.String()}, "nohz_full": {m.NoHzFull.String()},
	}
	for _, core := range m.Cores {
		text := core.CPUs.String()
		if core.Kind == topology.Efficiency {
			text = "~" + text
		}
		lists["cores"] = append(lists["cores"], text)
	}
	for level, domains := range map[string][]topology.Domain{"clusters": m.Clusters, "dies": m.Dies, "packages": m.Packages} {
		for _, domain := range domains {
			lists[level] = append(lists[level], domain.CPUs.String())
		}
	}
	for level, caches := range map[string][]topology.Cache{"l2s": m.L2s, "l3s": m.L3s} {
		for _, cache := range caches {
			lists[level] = append(lists[level], cache.CPUs.String())
		}
	}
	for _, node := range m.Nodes {
		lists["nodes"] = append(lists["nodes"], node.CPUs.String())
	}
	joined := map[string]string{}
	for level, list := range lists {
		joined[level] = strings.Join(list, " ")
	}
	return joined
}

func TestRead(t *testing.T) {
	t.Parallel()
	const twoNodes = "2 packages 2 cores 2 threads"
	for _, test := range []struct {
		name, text string
		changes    map[string]string
		want       map[string]string
	}{
		{"two nodes", twoNodes, nil, map[string]string{
			"online": "0-7", "cores": "0,4 1,5 2,6 3,7", "l2s": "0,4 1,5 2,6 3,7", "l3s": "0-1,4-5 2-3,6-7",
			"dies": "0-1,4-5 2-3,6-7", "packages": "0-1,4-5 2-3,6-7", "nodes": "0-1,4-5 2-3,6-7", "clusters": "", "nohz_full": ""}},
		{"before Linux 5.3", twoNodes, map[string]string{"/core_cpus_list": "-", "/package_cpus_list": "-", "/die_cpus_list": "-", "/die_id": "-"}, map[string]string{
			"cores": "0,4 1,5 2,6 3,7", "packages": "0-1,4-5 2-3,6-7", "dies": "0-1,4-5 2-3,6-7"}},
		{"core_id repeats", twoNodes, map[string]string{"/core_id": "0"}, map[string]string{"cores": "0,4 1,5 2,6 3,7"}},
		{"offline", twoNodes + " offline 1,4", nil, map[string]string{
			"online": "0,2-3,5-7", "offline": "1,4", "cores": "0 2,6 3,7 5", "nodes": "0,5 2-3,6-7"}},
		{"offline CPUs in lists", twoNodes + " offline 1", map[string]string{"node0/cpulist": "0-1,4-5", "cpu5/topology/core_cpus_list": "1,5"}, map[string]string{
			"cores": "0,4 2,6 3,7 5", "nodes": "0,4-5 2-3,6-7"}},
		{"lists that overlap and miss their own CPU", "4 cores", map[string]string{"cpu1/topology/core_cpus_list": "0", "cpu2/topology/core_cpus_list": "1-3"}, map[string]string{
			"cores": "0 1 2-3"}},
		{"clusters", "4 cores cluster 2 cores", nil, map[string]string{"clusters": "0-1 2-3"}},
		{"cluster unknown to Arm", "4 cores cluster 2 cores", map[string]string{"/cluster_id": "-1"}, map[string]string{"clusters": ""}},
		{"cluster unknown to some", "4 cores cluster 2 cores", map[string]string{"cpu0/topology/cluster_id": "65535", "cpu1/topology/cluster_id": "65535"}, map[string]string{"clusters": "2-3"}},
		{"cluster unknown to old kernels", "4 cores", map[string]string{"/cluster_id": "-", "/cluster_cpus_list": "-"}, map[string]string{"clusters": ""}},
		{"no cache", "2 packages 2 dies 2 nodes 2 cores without cache", nil, map[string]string{"l3s": "0-1 2-3 4-5 6-7", "l2s": ""}},
		{"no cache, dies in a node", "2 dies 4 cores without cache", nil, map[string]string{"l3s": "0-1 2-3"}},
		{"no cache, nodes in a die", "2 nodes 2 cores without cache", nil, map[string]string{"l3s": "0-1 2-3"}},
		{"no cache, CPUs as packages", "2 nodes 2 cores cpu-packages without cache", nil, map[string]string{"l3s": "0-1 2-3", "packages": "0 1 2 3"}},
		{"no L3 on some", "4 cores l3 2 cores", map[string]string{"cpu0/cache/index3/level": "4", "cpu1/cache/index3/level": "4"}, map[string]string{"l3s": "0-1 2-3"}},
		{"caches in another order", "2 cores", map[string]string{"index0/level": "3", "index0/type": "Unified", "index0/shared_cpu_list": "0-1", "index3/level": "1"}, map[string]string{"l3s": "0-1", "l2s": "0 1"}},
		{"an L2 for instructions", "2 cores", map[string]string{"index1/level": "2", "index1/shared_cpu_list": "0-1"}, map[string]string{"l2s": "0 1"}},
		{"hybrid", "2 cores 2 threads numbering adjacent efficiency 6", nil, map[string]string{
			"cores": "0-1 2-3 ~4 ~5 ~6 ~7 ~8 ~9", "l2s": "0-1 2-3 4-7 8-9", "clusters": "0-1 2-3 4-7 8-9", "l3s": "0-9"}},
		{"low-power cores", "4 cores", map[string]string{"sys/devices/cpu_core/cpus": "0-1", "sys/devices/cpu_atom/cpus": "2", "sys/devices/cpu_lowpower/cpus": "3"}, map[string]string{"cores": "0 1 ~2 ~3"}},
		{"only atoms", "2 cores", map[string]string{"sys/devices/cpu_atom/cpus": "0-1"}, map[string]string{"cores": "0 1"}},
		{"capacities", "2 cores", map[string]string{"sys/devices/system/cpu/cpu0/cpu_capacity": "446", "sys/devices/system/cpu/cpu1/cpu_capacity": "1024"}, map[string]string{"cores": "~0 1"}},
		{"isolated", "4 cores isolated 1 nohz-full 2-3", nil, map[string]string{"isolated": "1", "nohz_full": "2-3"}},
		{"no tick unset", "4 cores", map[string]string{"sys/devices/system/cpu/nohz_full": "  (null)\n"}, map[string]string{"nohz_full": ""}},
		{"no tick empty", "4 cores", map[string]string{"sys/devices/system/cpu/nohz_full": "\n"}, map[string]string{"nohz_full": ""}},
		{"no nodes", "2 packages 2 cores without nodes", nil, map[string]string{"nodes": "0-3", "l3s": "0-1 2-3"}},
		{"memory alone", "2 cores memory-nodes 1 8G", nil, map[string]string{"nodes": "0-1 "}},
		{"highest number", "8 packages 64 cores 8 threads numbering adjacent offline 1-4094", nil, map[string]string{
			"online": "0,4095", "cores": "0 4095", "packages": "0 4095", "nodes": "0       4095"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, err := sysfs.Read(tree(t, test.text, test.changes))
			if err != nil {
				t.Fatal(err)
			}
			got := sets(m)
			for level, want := range test.want {
				if got[level] != want {
					t.Errorf("%s are %q, want %q", level, got[level], want)
				}
			}
		})
	}
}

func TestReadValues(t *testing.T) {
	t.Parallel()
	m, err := sysfs.Read(tree(t, "2 packages 2 cores memory 3G node 1 memory 0 memory-nodes 2 8G "+
		"device 0000:3b:00.0 node 1 device 0000:00:02.0", map[string]string{
		"cpu0/cache/index3/id": "-", "cpu0/cache/index3/size": "-", "cpu0/cache/index3/ways_of_associativity": "-",
		"cpu2/cache/index3/size": "2M", "cpu2/topology/physical_package_id": "7",
	}))
	if err != nil {
		t.Fatal(err)
	}
	wantNodes := []topology.Node{
		{ID: 0, CPUs: cpuset.Of(0, 1), MemoryBytes: 3 << 30, Distances: []int{10, 21, 17, 28}, Tier: 4},
		{ID: 1, CPUs: cpuset.Of(2, 3), MemoryBytes: 0, Distances: []int{21, 10, 28, 17}, Tier: topology.None},
		{ID: 2, MemoryBytes: 8 << 30, Distances: []int{17, 28, 10, 28}, Tier: 5},
		{ID: 3, MemoryBytes: 8 << 30, Distances: []int{28, 17, 28, 10}, Tier: 5},
	}
	want := *m
	want.Nodes = wantNodes
	want.L3s = []topology.Cache{{ID: topology.None, CPUs: cpuset.Of(0, 1)}, {ID: 1, CPUs: cpuset.Of(2, 3), SizeBytes: 2 << 20, Ways: 16}}
	want.Packages = []topology.Domain{{ID: 0, CPUs: cpuset.Of(0, 1)}, {ID: 7, CPUs: cpuset.Of(2, 3)}}
	want.Devices = []topology.Device{
		{Address: "0000:00:02.0", Node: topology.None, CPUs: cpuset.Range(0, 3)},
		{Address: "0000:3b:00.0", Node: 1, CPUs: cpuset.Of(2, 3)},
	}
	if !m.Equal(&want) {
		t.Errorf("nodes %+v, L3s %+v, packages %+v, devices %+v", m.Nodes, m.L3s, m.Packages, m.Devices)
	}

	if m, err = sysfs.Read(tree(t, "4 cores without nodes memory 5G", nil)); err != nil {
		t.Fatal(err)
	}
	if n := m.Nodes[0]; n.MemoryBytes != 5<<30 || len(n.Distances) != 1 || n.Distances[0] != 10 || n.Tier != topology.None {
		t.Errorf("without node folders, node 0 = %+v", n)
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file, content, want string
	}{
		{"sys/devices/system/cpu/online", "-", "sys/devices/system/cpu/online does not exist"},
		{"sys/devices/system/cpu/online", "0-x", `sys/devices/system/cpu/online: CPU list "0-x": "x" is not a number`},
		{"sys/devices/system/cpu/online", "", "sys/devices/system/cpu/online names no CPU"},
		{"sys/devices/system/cpu/present", "0-5000", "sys/devices/system/cpu/present: CPU list"},
		{"cpu1/topology/core_id", "one", `sys/devices/system/cpu/cpu1/topology/core_id: "one" is not a number`},
		{"cpu0/topology/physical_package_id", "", `cpu0/topology/physical_package_id: "" is not a number`},
		{"cpu0/cache/index3/size", "big", `cpu0/cache/index3/size: "big" is not a cache size`},
		{"cpu0/cache/index3/shared_cpu_list", "-", "cpu0/cache/index3/shared_cpu_list does not exist"},
		{"node0/cpulist", "-", "sys/devices/system/node/node0/cpulist does not exist"},
		{"node0/cpulist", "0", "no node has the online CPUs 1"},
		{"node0/distance", "10 20", "1 nodes are online"},
		{"node0/distance", "ten", `node0/distance: "ten" is not a number`},
		{"node0/meminfo", "Node 0 MemTotal: lots", `node0/meminfo: "Node 0 MemTotal: lots" is not an amount`},
		{"memory_tier4/nodelist", "x", "memory_tier4/nodelist: CPU list"},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			m, err := sysfs.Read(tree(t, "2 cores", map[string]string{test.file: test.content}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Read = %v, %v; want an error with %q", m, err, test.want)
			}
		})
	}
}

// hotplug takes CPU 1 offline after that many opened files; with flap, CPU 1 then comes and goes
// with each further file.
type hotplug struct {
	with, without fs.FS
	left          int
	flap          bool
}

func (h *hotplug) Open(name string) (fs.File, error) {
	h.left--
	if h.left > 0 || h.flap && h.left%2 == 0 {
		return h.with.Open(name)
	}
	return h.without.Open(name)
}

func TestReadDuringHotplug(t *testing.T) {
	t.Parallel()
	with, without := tree(t, "2 packages 2 cores", nil), tree(t, "2 packages 2 cores offline 1", nil)
	synctest.Test(t, func(t *testing.T) {
		before, err := sysfs.Read(with)
		if err != nil {
			t.Fatal(err)
		}
		after, err := sysfs.Read(without)
		if err != nil {
			t.Fatal(err)
		}
		for left := 0; ; left++ {
			h := &hotplug{with: with, without: without, left: left}
			m, err := sysfs.Read(h)
			if err != nil {
				t.Fatalf("CPU 1 away after %d files: %v", left, err)
			}
			if !m.Equal(before) && !m.Equal(after) {
				t.Fatalf("CPU 1 away after %d files: a mixture: %v", left, sets(m))
			}
			if h.left > 0 {
				break // the read ended earlier
			}
		}
		_, err = sysfs.Read(&hotplug{with: with, without: without, flap: true})
		if err == nil || !strings.Contains(err.Error(), "sys/devices/system/cpu/") {
			t.Errorf("a machine that never rests: %v", err)
		}
	})
}

// drawText draws the text of a machine that can be built.
func drawText(t *rapid.T) string {
	small := rapid.IntRange(1, 4)
	packages, nodes, cores, threads := small.Draw(t, "packages"), small.Draw(t, "nodes"), small.Draw(t, "cores"), small.Draw(t, "threads")
	text := fmt.Sprintf("%d packages %d nodes %d cores %d threads", packages, nodes, cores, threads)
	var even []int
	for n := range nodes * cores {
		if nodes*cores%(n+1) == 0 {
			even = append(even, n+1)
		}
	}
	divisor := rapid.SampledFrom(even)
	text += fmt.Sprintf(" %d dies l3 %d cores cluster %d cores", divisor.Draw(t, "dies"), divisor.Draw(t, "l3"), divisor.Draw(t, "cluster"))
	var offline cpuset.Set
	for _, cpu := range rapid.SliceOfN(rapid.IntRange(1, packages*nodes*cores*threads), 0, 20).Draw(t, "offline") {
		if cpu < packages*nodes*cores*threads {
			offline.Add(cpu)
		}
	}
	if !offline.IsEmpty() {
		text += " offline " + offline.String()
	}
	for _, option := range []string{"numbering adjacent", "without cache", "without dies", "without nodes"} {
		if rapid.Bool().Draw(t, option) {
			text += " " + option
		}
	}
	return text
}

// On every machine, each level divides its online CPUs, and each CPU knows its location.
func TestLevelsPartition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m, err := synth.Machine(drawText(t))
		if err != nil {
			t.Fatal(err)
		}
		levels := map[string][]cpuset.Set{}
		for i, core := range m.Cores {
			levels["cores"] = append(levels["cores"], core.CPUs)
			for cpu := range core.CPUs.All() {
				if c, ok := m.CPU(cpu); !ok || c.Core != i || c.Kind != core.Kind {
					t.Errorf("CPU %d of core %d = %+v", cpu, i, c)
				}
			}
		}
		for i, l3 := range m.L3s {
			levels["l3s"] = append(levels["l3s"], l3.CPUs)
			for cpu := range l3.CPUs.All() {
				if c, _ := m.CPU(cpu); c.L3 != i {
					t.Errorf("CPU %d of L3 %d = %+v", cpu, i, c)
				}
			}
		}
		for _, die := range m.Dies {
			levels["dies"] = append(levels["dies"], die.CPUs)
		}
		for _, pkg := range m.Packages {
			levels["packages"] = append(levels["packages"], pkg.CPUs)
		}
		for level, parts := range levels {
			var all cpuset.Set
			for i, part := range parts {
				if part.IsEmpty() || part.Overlaps(all) || i > 0 && part.First() < parts[i-1].First() {
					t.Errorf("%s %v: %v is empty, overlaps or is out of order", level, parts, part)
				}
				all = cpuset.Union(all, part)
			}
			if all != m.Online {
				t.Errorf("%s %v are not the online CPUs %v", level, parts, m.Online)
			}
		}
	})
}

func TestThisMachine(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/devices/system/cpu/online"); err != nil {
		t.Skip("no sysfs here:", err)
	}
	m, err := sysfs.Read(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Online.String(); got != strings.TrimSpace(string(text)) {
		t.Errorf("online %s, want %s", got, text)
	}
	if len(m.L3s) == 0 || len(m.Nodes) == 0 || m.Memory(m.MemoryNodes()) == 0 {
		t.Errorf("L3s %v, nodes %v", m.L3s, m.Nodes)
	}
}

func BenchmarkRead(b *testing.B) {
	spec, err := synth.Parse("4 packages 4 nodes 32 cores 2 threads l3 8 cores")
	if err != nil {
		b.Fatal(err)
	}
	dir := filepath.Join(b.TempDir(), "root")
	if err := spec.WriteTo(dir); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := sysfs.Read(os.DirFS(dir)); err != nil {
			b.Fatal(err)
		}
	}
}
