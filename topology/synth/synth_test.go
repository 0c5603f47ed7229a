package synth_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

func TestCounts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text                                               string
		cpus, cores, l2s, l3s, clusters, dies, pkgs, nodes int
	}{
		{"", 1, 1, 1, 1, 0, 1, 1, 1},
		{"1 package 1 die 1 node 1 core 1 thread", 1, 1, 1, 1, 0, 1, 1, 1},
		{"2 packages 2 nodes 8 cores 2 threads", 64, 32, 32, 4, 0, 2, 2, 4},
		{"2 threads 8 cores # comment 7 cores\n2 packages", 32, 16, 16, 2, 0, 2, 2, 2},
		{"2 packages 4 dies 8 cores l3 2 cores", 16, 16, 16, 8, 0, 8, 2, 2},
		{"2 packages 2 nodes 8 cores l3 16 cores cluster 4 cores", 32, 32, 32, 2, 8, 2, 2, 4},
		{"8 cores 2 threads efficiency 16", 32, 24, 12, 1, 12, 1, 1, 1},
		{"4 cores memory-nodes 2 1T", 4, 4, 4, 1, 0, 1, 1, 3},
		{"8 cores cpu-packages without cache", 8, 8, 0, 1, 0, 8, 8, 1},
		{"4096 cores without cache", 4096, 4096, 0, 1, 0, 1, 1, 1},
	} {
		m, err := synth.Machine(test.text)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, level := range []struct {
			name      string
			got, want int
		}{
			{"CPUs", len(m.CPUs), test.cpus}, {"cores", len(m.Cores), test.cores}, {"L2s", len(m.L2s), test.l2s},
			{"L3s", len(m.L3s), test.l3s}, {"clusters", len(m.Clusters), test.clusters}, {"dies", len(m.Dies), test.dies},
			{"packages", len(m.Packages), test.pkgs}, {"nodes", len(m.Nodes), test.nodes},
		} {
			if level.got != level.want {
				t.Errorf("%q: %d %s, want %d", test.text, level.got, level.name, level.want)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	m, err := synth.Machine("2 packages 2 cores 2 threads numbering adjacent memory 8G node 1 memory 512M without cache-ids " +
		"device 0000:00:02.0 node 1 memory-nodes 1 2T without tiers device 0000:00:03.0 node 0 memory 4G")
	if err != nil {
		t.Fatal(err)
	}
	// "node" of a device is not the start of "node 0 memory 4G".
	if len(m.Devices) != 2 || m.Devices[0].Node != 1 || m.Devices[1].Node != -1 {
		t.Errorf("devices %+v", m.Devices)
	}
	for node, memory := range []int64{4 << 30, 512 << 20, 2 << 40} {
		if m.Nodes[node].MemoryBytes != memory || m.Nodes[node].Tier != -1 {
			t.Errorf("node %d = %+v, want %d bytes and no tier", node, m.Nodes[node], memory)
		}
	}
	if m.Cores[1].CPUs != cpuset.Of(2, 3) || m.L3s[1].ID != -1 {
		t.Errorf("cores %v, L3s %v", m.Cores, m.L3s)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		"2 pakages":                           `what 2 counts: unknown word "pakages"; did you mean "packages"?`,
		"2 sockets":                           "known are packages, dies, nodes, cores, threads",
		"2":                                   "what 2 counts is missing",
		"ofline 3":                            `did you mean "offline"?`,
		"cores 2":                             `cores comes after its number, like "2 cores"`,
		"0 cores":                             "0 cores: a count is from 1 to 4096",
		"-1 cores":                            "-1 cores: a count is from 1 to 4096",
		"2 cores 2 cores":                     "cores is given twice",
		"memory 1G memory 1G":                 "memory is given twice",
		"64 packages 65 cores":                "more than 4096 CPUs",
		"4096 packages 4096 nodes 4096 cores": "more than 4096 CPUs",
		"4096 cores efficiency 1":             "more than 4096 CPUs",
		"1024 packages memory-nodes 1 1G":     "1025 nodes: at most 1024",
		"4 cores l3 3 cores":                  "l3 3: does not divide a package's 4 cores",
		"4 cores l3 8 cores":                  "l3 8: does not divide",
		"4 cores cluster 3 cores":             "cluster 3: does not divide",
		"4 cores 3 dies":                      "dies 3: does not divide",
		"4 cores l3 2":                        `expected "l3 2 cores"`,
		"l3 x cores":                          `l3 "x": expected a number`,
		"4 cores l3 2 cores efficiency 4":     "l3 and efficiency can't be combined",
		"2 nodes efficiency 4":                "efficiency: only for a machine of one package",
		"2 threads cpu-packages":              "cpu-packages: only with 1 thread",
		"memory 64":                           "expected an amount of memory like 64G",
		"memory 64GB":                         "expected an amount of memory like 64G",
		"memory -1G":                          "expected an amount of memory like 64G",
		"memory 9999999T":                     "expected an amount of memory like 64G",
		"memory":                              "expected an amount of memory like 64G",
		"memory-nodes 2":                      "expected an amount of memory like 64G",
		"node 3 memory 1G":                    "node 3 memory: there is no such node, the last is 0",
		"node 0 memory 1G node 0 memory 2G":   "node 0 memory is given twice",
		"node 0 memori 1G":                    `node 0: unknown word "memori"; did you mean "memory"?`,
		"numbering amd":                       `numbering: unknown word "amd"; known are linux, adjacent`,
		"without caches":                      `without: unknown word "caches"; did you mean "cache"?`,
		"offline":                             "offline: expected a CPU list",
		"offline 1-":                          "offline: CPU list",
		"offline 7":                           "offline: there is no CPU 7, the last is 0",
		"offline 0":                           "one CPU at least stays online",
		"device 3b:00.0":                      "expected a PCI address like 0000:3b:00.0",
		"device 0000:3b:00.0 node 1":          "node 1: there is no such node",
		"device 0000:3b:00.0 char 226":        "expected major:minor",
		"device 0000:3b:00.0 device 0000:3b:00.0":                       "device 0000:3b:00.0 is given twice",
		"device 0000:3b:00.0 char 226:0 device 0000:3b:00.1 char 226:0": "another device has the number 226:0",
		"without nodes memory-nodes 1 1G":                               "there can't be memory-nodes",
	} {
		_, err := synth.Parse(text)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("Parse(%q): %v; want an error with %q", text, err, why)
		}
	}
}

func TestWriteTo(t *testing.T) {
	t.Parallel()
	const text = "2 packages 2 nodes 2 cores 2 threads offline 3 isolated 1 nohz-full 2 memory-nodes 1 8G device 0000:3b:00.0 node 1 char 226:0"
	spec, err := synth.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := spec.WriteTo(dir); err != nil {
		t.Fatal(err)
	}
	onDisk, err := sysfs.Read(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	inMemory, err := synth.Machine(text)
	if err != nil {
		t.Fatal(err)
	}
	if !onDisk.Equal(inMemory) {
		t.Errorf("on disk %+v, in memory %+v", onDisk, inMemory)
	}
	if _, err := fs.ReadFile(spec.FS(), "sys/devices/system/cpu"); err == nil {
		t.Error("a folder can be read as a file")
	}
	blocked := t.TempDir()
	if err := os.WriteFile(blocked+"/sys", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := spec.WriteTo(blocked); err == nil {
		t.Error("no error where sys is a file")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("2 packages 2 nodes 8 cores 2 threads # comment\n")
	f.Add("8 cores 2 threads numbering adjacent efficiency 16 offline 3,5 isolated 2-3 nohz-full 2-3")
	f.Add("2 dies 4 cores l3 2 cores cluster 2 cores memory 64G node 0 memory 0 memory-nodes 2 128G without tiers")
	f.Add("4 cores cpu-packages without cache without dies without nodes device 0000:3b:00.0 node 0 char 226:0")
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := synth.Parse(text)
		if err != nil {
			return
		}
		if _, err := sysfs.Read(spec.FS()); err != nil {
			t.Errorf("%q is parsed but can't be read: %v", text, err)
		}
	})
}

func BenchmarkMachine(b *testing.B) {
	for b.Loop() {
		if _, err := synth.Machine("4 packages 4 nodes 32 cores 2 threads l3 8 cores"); err != nil {
			b.Fatal(err)
		}
	}
}
