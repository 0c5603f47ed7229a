package resctrl

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
)

// On every kind of machine classes share their partition and none leaves it, even if a class can't
// have its own share.
func TestSetupPartitions(t *testing.T) {
	t.Parallel()
	jobs := schemata.Partition{Name: "jobs", L3: l3(0, 40), MB: mb(80)}
	services := schemata.Partition{Name: "services", L3: l3(40, 100)}
	mask := map[int]schemata.Cache{schemata.All: {Range: schemata.Range{Mask: 0x7ff}}}
	classes := []schemata.Class{
		{Name: "small", Partition: jobs, L3: l3(0, 50), MB: mb(50)},
		{Name: "beyond", Partition: jobs, L3: mask},
		{Name: "web", Partition: services},
	}
	tests := map[string]struct {
		machine fake.Machine
		want    map[string]string
		says    []string
	}{
		"Intel": {fake.Intel(), map[string]string{
			"small":  "L3:0=7;1=7\nMB:0=40;1=40\n",
			"beyond": "L3:0=1f;1=1f\nMB:0=80;1=80\n", "web": "L3:0=7e0;1=7e0\nMB:0=100;1=100\n",
		}, []string{"RDT class beyond of partition jobs, L3: mask 0x7ff has ways that its partition hasn't"}},
		"CDP": {fake.CDP(), map[string]string{
			"small": "L3CODE:0=7;1=7\nL3DATA:0=7;1=7\nL2:0=ffff;1=ffff;2=ffff;3=ffff\nMB:0=40;1=40\n",
			"web":   "L3CODE:0=7e0;1=7e0\nL3DATA:0=7e0;1=7e0\nL2:0=ffff;1=ffff;2=ffff;3=ffff\nMB:0=100;1=100\n",
		}, []string{"it has all of its partition"}},
		"Haswell": {fake.Haswell(), map[string]string{"small": "L3:0=f\n", "beyond": "L3:0=ff\n", "web": "L3:0=fff00\n"},
			[]string{"MB: this machine"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := machine(t, test.machine)
			groups, err := b.Setup(classes, 0)
			if len(groups) != len(classes) {
				t.Errorf("the groups are %+v", groups)
			}
			for _, text := range test.says {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("got %v, want %q", err, text)
				}
			}
			if errors.Is(err, syscall.EINVAL) {
				t.Errorf("the kernel refuses: %v", err)
			}
			for class, want := range test.want {
				b.want("sluice-"+class, want)
			}
			b.Writes()
			b.restart()
			b.Setup(classes, 0)
			if again := b.Writes(); again != nil {
				t.Errorf("after a restart, what is right was written again: %q", again)
			}
		})
	}
}

// A class that is moved into a partition gives up what it had outside of it.
func TestIntoPartition(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.setup(0, []schemata.Class{{Name: "a"}})
	b.want("sluice-a", "L3:0=7ff;1=7ff\nMB:0=100;1=100\n")
	b.setup(0, []schemata.Class{{Name: "a", Partition: schemata.Partition{L3: l3(50, 100), MB: mb(85)}}})
	b.want("sluice-a", "L3:0=7c0;1=7c0\nMB:0=90;1=90\n")
}
