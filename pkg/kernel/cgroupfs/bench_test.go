package cgroupfs

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// nested makes a container's cgroup as deep as with Kubernetes' systemd driver.
func nested(b *testing.B) (*v1, string) {
	k := twoCPUs(b)
	k.child("kubepods-burstable.slice", "0-1")
	k.child("kubepods-burstable.slice/pod.slice", "0-1")
	return k, k.child("kubepods-burstable.slice/pod.slice/cri-containerd.scope", "0-1")
}

func BenchmarkApplySet(b *testing.B) {
	k, dir := nested(b)
	sets := [][]knobs.Change{{change(dir, knobs.CPUs, set("0"))}, {change(dir, knobs.CPUs, set("0-1"))}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := k.Apply(sets[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteFile writes the same file by its whole path.
func BenchmarkWriteFile(b *testing.B) {
	k, dir := nested(b)
	file := k.cpuset.tree.String() + dir + "/cpuset.cpus"
	sets := [][]byte{[]byte("0"), []byte("0-1")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := os.WriteFile(file, sets[i%2], 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	k, dir := nested(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Read(dir, knobs.CPUs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadFile reads the same file by its whole path.
func BenchmarkReadFile(b *testing.B) {
	k, dir := nested(b)
	file := k.cpuset.tree.String() + dir + "/cpuset.cpus"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := os.ReadFile(file); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadKnob reads each knob that this host's kernel has, as a pass does.
func BenchmarkReadKnob(b *testing.B) {
	k, dir := nestedAll(b)
	for knob := range knobs.Knobs {
		if _, err := k.Read(dir, knob); err != nil {
			continue
		}
		b.Run(knob.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := k.Read(dir, knob); err != nil {
					b.Fatal(err)
				}
			}
		})
		// The baseline opens, reads and closes the same files by their paths.
		b.Run(knob.String()+"/plain", func(b *testing.B) {
			files := k.filesOf(dir, knob)
			b.ReportAllocs()
			for b.Loop() {
				for _, file := range files {
					if _, err := os.ReadFile(file); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// filesOf returns the files that reading a knob reads.
func (k *v1) filesOf(dir string, knob knobs.Knob) []string {
	s, h, err := k.at(knob)
	if err != nil {
		k.t.Fatal(err)
	}
	names := s.V1
	switch knob {
	case knobs.Quota:
		names = []string{quotaFile1, periodFile1}
	case knobs.IOWeight:
		names = []string{"blkio.bfq.weight_device"}
	}
	var files []string
	for _, name := range names {
		files = append(files, h.tree.String()+dir+"/"+name)
	}
	return files
}

// nestedAll does the same as nested in every hierarchy.
func nestedAll(b *testing.B) (*v1, string) {
	k, dir := nested(b)
	for _, h := range k.trees {
		if h == k.cpuset || h == k.cpu || h.v2 {
			continue
		}
		for i, c := range dir[len(k.dir)+1:] + "/" {
			if c != '/' {
				continue
			}
			if err := h.tree.Mkdir(relative(dir[:len(k.dir)+1+i])); err != nil {
				b.Fatal(err)
			}
		}
	}
	return k, dir
}

// lsContainer returns all changes for an LS container on mainline v1.
func lsContainer(b *testing.B, dir string, flip int64) []knobs.Change {
	b.Helper()
	return []knobs.Change{
		change(dir, knobs.Mems, set("0")),
		change(dir, knobs.CPUs, set([]string{"0", "0-1"}[flip])),
		change(dir, knobs.Burst, knobs.CPUBurst(0)),
		change(dir, knobs.Quota, knobs.CPUQuota{Quota: time.Duration(50+flip) * time.Millisecond, Period: 100 * time.Millisecond}),
		change(dir, knobs.Burst, knobs.CPUBurst(time.Duration(20+flip)*time.Millisecond)),
		change(dir, knobs.Weight, knobs.Shares(2048+flip)),
		change(dir, knobs.MemoryMax, knobs.Bytes(1<<30+flip<<20)),
		change(dir, knobs.SoftLimit, knobs.Bytes(1<<29+flip<<20)),
		change(dir, knobs.IOWeight, knobs.PerDevice([]string{"default 200", "default 201"}[flip])),
		change(dir, knobs.IOMax, knobs.PerDevice(wholeDisk(b)+[]string{" wbps=1048576", " wbps=1048577"}[flip])),
	}
}

func BenchmarkApplyLSContainer(b *testing.B) {
	k, dir := nestedAll(b)
	sets := [][]knobs.Change{lsContainer(b, dir, 0), lsContainer(b, dir, 1)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := k.Apply(sets[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWriteLSContainer writes the same values to the same files by their paths.
func BenchmarkWriteLSContainer(b *testing.B) {
	k, dir := nestedAll(b)
	type write struct{ file, text string }
	disk := wholeDisk(b)
	at := func(h *hierarchy, name string) string { return h.tree.String() + dir + "/" + name }
	var sets [2][]write
	for i, n := range []string{"0", "1"} {
		sets[i] = []write{
			{at(k.cpuset, "cpuset.mems"), "0"}, {at(k.cpuset, "cpuset.cpus"), []string{"0", "0-1"}[i]},
			{at(k.cpu, burstFiles1[0]), "0"}, {at(k.cpu, quotaFile1), "5" + n + "000"}, {at(k.cpu, burstFiles1[0]), "2" + n + "000"},
			{at(k.cpu, "cpu.shares"), "204" + n}, {at(k.memory, limitFile1), "107374182" + n}, {at(k.memory, softLimitFile1), "53687091" + n},
			{at(k.io, "blkio.bfq.weight"), "20" + n}, {at(k.io, throttles[1]), disk + " 104857" + n},
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for _, w := range sets[i%2] {
			if err := os.WriteFile(w.file, []byte(w.text), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkMemoryStat(b *testing.B) {
	k, dir := nestedAll(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.MemoryStat(dir); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	k := realV1(b)
	for b.Loop() {
		if _, err := k.Probe(); err != nil {
			b.Fatal(err)
		}
	}
}
