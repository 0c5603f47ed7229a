package cgroupfs

import (
	"os"
	"testing"

	"github.com/sluice-dev/sluice/pkg/plan"
)

// nested makes a container's cgroup as deep as Kubernetes' systemd driver does.
func nested(b *testing.B) (*v1, string) {
	k := twoCPUs(b)
	k.child("kubepods-burstable.slice", "0-1")
	k.child("kubepods-burstable.slice/pod.slice", "0-1")
	return k, k.child("kubepods-burstable.slice/pod.slice/cri-containerd.scope", "0-1")
}

func BenchmarkApplySet(b *testing.B) {
	k, dir := nested(b)
	sets := [][]plan.Change{{change(dir, plan.CPUs, set("0"))}, {change(dir, plan.CPUs, set("0-1"))}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := k.Apply(sets[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}

// The same file, written by its whole path.
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
		if _, err := k.Read(dir, plan.CPUs); err != nil {
			b.Fatal(err)
		}
	}
}

// The same file, read by its whole path.
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
