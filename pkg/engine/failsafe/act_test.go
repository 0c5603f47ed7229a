package failsafe

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// TestCarryNestedLimit checks that a container gets its limit back, or none, although crun has put the
// limit only on the cgroup that it makes below the container's own.
func TestCarryNestedLimit(t *testing.T) {
	t.Parallel()
	const container, inner = "/kubepods/pod-web/app", "/kubepods/pod-web/app/container"
	for text, original := range map[string]knobs.CPUQuota{
		"max 100000": {Quota: -1, Period: knobs.DefaultPeriod}, "200000 100000": knobs.MicroQuota(200_000, 100_000),
	} {
		kernel := fakekernel.New(fakekernel.MainlineV2())
		kernel.Mkdir(inner)
		if err := kernel.Populate(inner, 1); err != nil {
			t.Fatal(err)
		}
		if err := kernel.WriteFile(inner, "cpu.max", "50000 100000"); err != nil {
			t.Fatal(err)
		}
		driver, err := kernel.Driver()
		if err != nil {
			t.Fatal(err)
		}
		defer driver.Close()
		o := knobs.Object{Path: container, Name: "ns/web/app", Level: knobs.ContainerLevel}
		if err := Carry(driver, []knobs.Change{{Object: o, Knob: knobs.Quota, From: original, To: original}}); err != nil {
			t.Fatal(err)
		}
		if got, err := kernel.ReadFile(inner, "cpu.max"); err != nil || got != text {
			t.Errorf("it has %q, want %q; %v", got, text, err)
		}
		if got, err := kernel.ReadFile(container, "cpu.max"); err != nil || got != "max 100000" {
			t.Errorf("its own cgroup has %q, %v", got, err)
		}
	}
}
