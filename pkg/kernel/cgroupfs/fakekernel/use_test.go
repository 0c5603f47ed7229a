package fakekernel_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
)

// TestUse checks memory and processes of the fake kernel.
func TestUse(t *testing.T) {
	t.Parallel()
	k := fakekernel.New(fakekernel.MainlineV1())
	k.Mkdir("/p")
	k.Use("/p", 100<<20, 20<<20)
	if err := k.WriteFile("/p", "memory.limit_in_bytes", "50M"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a limit below what can't be reclaimed: %v, want EBUSY", err)
	}
	if err := k.WriteFile("/p", "memory.limit_in_bytes", "90M"); err != nil {
		t.Error(err)
	}
	if got, _ := k.ReadFile("/p", "memory.usage_in_bytes"); got != fmt.Sprint(90<<20) {
		t.Errorf("90 MiB of limit leave %s", got)
	}
	if err := k.Populate("/p", 1); err != nil {
		t.Error(err)
	}
	if err := k.WriteFile("/p", "cpuset.cpus", "\n"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("emptying a used set: %v, want ENOSPC", err)
	}
	k2 := fakekernel.New(fakekernel.MainlineV2())
	k2.Mkdir("/p")
	k2.Use("/p", 100<<20, 20<<20)
	if err := k2.WriteFile("/p", "memory.reclaim", "10M"); err != nil {
		t.Error(err)
	}
	if err := k2.WriteFile("/p", "memory.reclaim", "20M"); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("reclaiming more than there is: %v, want EAGAIN", err)
	}
}
