package cgroupfs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestNamespace checks that the refusal to set the cpuset of the own cgroup namespace is told from others.
func TestNamespace(t *testing.T) {
	t.Parallel()
	k := fakekernel.New(fakekernel.MainlineV2())
	k.Mkdir(ctr)
	d, err := k.Driver()
	if err != nil {
		t.Fatal(err)
	}
	set := func(level knobs.Level, path string) error {
		return d.Apply([]knobs.Change{{Object: knobs.Object{Path: path, Name: "x", Level: level}, Knob: knobs.CPUs, To: knobs.CPUSet(cpuset.Of(1))}})
	}
	if err := set(knobs.ContainerLevel, ctr); err != nil {
		t.Error(err)
	}
	k.Namespace(ctr)
	err = set(knobs.ContainerLevel, ctr)
	if !errors.Is(err, cgroupfs.ErrNamespace) || !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "until the runtime sets it") {
		t.Errorf("its own cpuset: %v, want ErrNamespace", err)
	}
	if err := set(knobs.PodLevel, pod); err != nil {
		t.Errorf("the cpuset of the cgroup above: %v", err)
	}
}
