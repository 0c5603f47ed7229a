package resctrl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
)

func TestAssign(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.setup(0, []schemata.Class{be()})
	to := Place{Group: ClassGroup("BE")}
	b.Start(5, 5, 6, 7, 0)
	b.End(6) // after it was listed
	b.must(b.Assign(to, 5))
	b.wantIn("sluice-BE", 5, 7)
	b.wantIn("", 0) // the kernel would take 0 for ourselves
	if err := b.Assign(to, 99); !errors.Is(err, ErrGone) {
		t.Errorf("a process that isn't: %v, want ErrGone", err)
	}
	b.must(b.Rmdir("sluice-BE"))
	if err := b.Assign(to, 5); !errors.Is(err, ErrNoGroup) || !strings.Contains(err.Error(), "sluice-BE") {
		t.Errorf("a group that is gone: %v, want ErrNoGroup", err)
	}
	b.must(b.Assign(Place{}, 5)) // the default group
}

// While threads are moved, those not moved yet start others.
func TestAssignFindsNewThreads(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.setup(0, []schemata.Class{be()})
	b.Start(5, 5, 6)
	all, newest := []int{5, 6}, 6
	b.must(b.AssignAll(Place{Group: "sluice-BE"}, func() ([]int, error) {
		seen := slices.Clone(all)
		if newest < 9 { // not moved yet, it starts another after the look
			b.Clone(5, newest, newest+1)
			newest++
			all = append(all, newest)
		}
		return seen, nil
	}))
	b.wantIn("sluice-BE", 5, 6, 7, 8, 9)
	broken := errors.New("broken")
	if err := b.AssignAll(Place{}, func() ([]int, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// A container that starts threads all the time holds nobody up.
func TestAssignEnds(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.setup(0, []schemata.Class{be()})
	b.Start(5, 5)
	var all []int
	newest := 5
	b.must(b.AssignAll(Place{Group: "sluice-BE"}, func() ([]int, error) {
		all = append(all, newest)
		b.Clone(5, newest, newest+1)
		newest++
		return all, nil
	}))
	b.wantIn("sluice-BE", all...)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	open := func(kind error, says string) {
		t.Helper()
		h, err := Open(root)
		if err == nil {
			h.Close()
		}
		if !errors.Is(err, kind) || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %v and %q", err, kind, says)
		}
	}
	open(ErrNone, "doesn't have it")
	put("proc/self/mountinfo", "25 1 0:1 / / rw - ext4 /dev/sda rw\n")
	put("proc/filesystems", "nodev\tresctrl\n\text4\n")
	open(ErrNone, "mount -t resctrl")
	put("proc/self/mountinfo", "25 1 0:1 / / rw - ext4 /dev/sda rw\n40 25 0:38 / /sys/fs/resctrl rw,relatime shared:17 - resctrl resctrl rw,mba_MBps\n")
	if _, err := Open(root); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("a mount that can't be reached: %v", err)
	}
	put("sys/fs/resctrl/schemata", "MB:0=4294967295\n")
	put("sys/fs/resctrl/info/MB/num_closids", "8\n")
	for name, text := range map[string]string{"min_bandwidth": "10", "bandwidth_gran": "10", "delay_linear": "1"} {
		put("sys/fs/resctrl/info/MB/"+name, text+"\n")
	}
	h, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if unit := h.Info().Bandwidths[schemata.MB].Unit; unit != schemata.MiBps {
		t.Errorf("the unit is %v, want MiB/s", unit)
	}
	put("sys/fs/resctrl/schemata", "MB\n")
	if _, err := Open(root); err == nil || !strings.Contains(err.Error(), "no colon") {
		t.Errorf("schemata that make no sense: %v", err)
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add("40 25 0:38 / /sys/fs/resctrl rw,relatime shared:17 - resctrl resctrl rw,mba_MBps\n")
	f.Fuzz(func(t *testing.T, text string) {
		if point, mbps, ok := parseMountinfo(text); !ok && (point != "" || mbps) {
			t.Errorf("%q gives %q, %v without a mount", text, point, mbps)
		}
	})
}
