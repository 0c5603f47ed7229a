package resctrl

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/fake"
	"github.com/sluice-dev/sluice/pkg/kernel/resctrl/schemata"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// bed is a fake machine with its Host.
type bed struct {
	*fake.Kernel
	*Host
	t testing.TB
}

func machine(t testing.TB, m fake.Machine) *bed {
	t.Helper()
	k := fake.New(m)
	b := &bed{Kernel: k, t: t}
	b.restart()
	return b
}

// restart replaces the Host, so that only the kernel's state remains.
func (b *bed) restart() {
	b.t.Helper()
	h, err := New(b.Kernel, fake.Proc{Kernel: b.Kernel}, false)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Host = h
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) setup(maxMBps int, classes []schemata.Class) {
	b.t.Helper()
	groups, err := b.Setup(classes, maxMBps)
	if b.must(err); len(groups) != len(classes) {
		b.t.Errorf("%d classes have groups %+v", len(classes), groups)
	}
}

func (b *bed) want(group, schemata string) {
	b.t.Helper()
	text, err := b.Read(filepath.Join(group, "schemata"))
	if err != nil || strings.ReplaceAll(text, " ", "") != schemata {
		b.t.Errorf("group %q has %q, %v; want %q", group, strings.ReplaceAll(text, " ", ""), err, schemata)
	}
}

func (b *bed) wantGroups(names ...string) {
	b.t.Helper()
	if got := b.Groups(); !slices.Equal(got, names) {
		b.t.Errorf("the groups are %q, want %q", got, names)
	}
}

func (b *bed) wantIn(group string, tids ...int) {
	b.t.Helper()
	for _, tid := range tids {
		if got, _ := b.Of(tid); got != group {
			b.t.Errorf("thread %d is in %q, want %q", tid, got, group)
		}
	}
}

func l3(from, to int) map[int]schemata.Cache {
	return map[int]schemata.Cache{schemata.All: {Range: schemata.Range{From: from, To: to}}}
}

func mb(percent int) map[int]schemata.Bandwidth {
	return map[int]schemata.Bandwidth{schemata.All: {Percent: percent}}
}

func rate(mbps int) map[int]schemata.Bandwidth {
	return map[int]schemata.Bandwidth{schemata.All: {MBps: mbps}}
}

func be() schemata.Class { return schemata.Class{Name: "BE", L3: l3(0, 30), MB: mb(85)} }

func TestSetup(t *testing.T) {
	t.Parallel()
	split := map[int]schemata.Cache{schemata.All: {Code: schemata.Range{To: 20}, Data: schemata.Range{From: 20, To: 100}}}
	tests := map[string]struct {
		machine fake.Machine
		class   schemata.Class
		want    string
		err     string
	}{
		"Intel":                {fake.Intel(), be(), "L3:0=f;1=f\nMB:0=90;1=90\n", ""},
		"CDP":                  {fake.CDP(), schemata.Class{L3: split, L2: l3(50, 100)}, "L3CODE:0=7;1=7\nL3DATA:0=7f8;1=7f8\nL2:0=ff00;1=ff00;2=ff00;3=ff00\nMB:0=100;1=100\n", ""},
		"one share under CDP":  {fake.CDP(), schemata.Class{L3: l3(0, 50)}, "L3CODE:0=3f;1=3f\nL3DATA:0=3f;1=3f\nL2:0=ffff;1=ffff;2=ffff;3=ffff\nMB:0=100;1=100\n", ""},
		"Haswell":              {fake.Haswell(), schemata.Class{L3: l3(0, 1)}, "L3:0=3\n", ""},
		"no bandwidth control": {fake.Haswell(), be(), "L3:0=3f\n", "MB: this machine"},
		"AMD":                  {fake.AMD(), schemata.Class{L3: l3(50, 100), MB: rate(2000), SMBA: rate(500)}, "L3:0=ff00;1=ff00;4=ff00;12=ff00\nMB:0=16;1=16;4=16;12=16\nSMBA:0=4;1=4;4=4;12=4\n", ""},
		"percent on AMD":       {fake.AMD(), schemata.Class{MB: mb(50), L3: l3(0, 50)}, "L3:0=ff;1=ff;4=ff;12=ff\nMB:0=2048;1=2048;4=2048;12=2048\nSMBA:0=2048;1=2048;4=2048;12=2048\n", "can't be turned into 1/8 GB/s"},
		"gaps on AMD":          {fake.AMD(), schemata.Class{L3: map[int]schemata.Cache{12: {Range: schemata.Range{Mask: 0x55}}}}, "L3:0=ffff;1=ffff;4=ffff;12=55\nMB:0=2048;1=2048;4=2048;12=2048\nSMBA:0=2048;1=2048;4=2048;12=2048\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := machine(t, test.machine)
			test.class.Name = "c"
			groups, err := b.Setup([]schemata.Class{test.class}, 0)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %v, want %q", err, test.err)
			}
			if len(groups) != 1 || groups[0].Name != "sluice-c" || groups[0].Changed == "" && test.err == "" {
				t.Errorf("the groups are %+v", groups)
			}
			b.want("sluice-c", test.want)
			b.restart()
			b.Writes()
			b.Setup([]schemata.Class{test.class}, 0)
			if again := b.Writes(); again != nil {
				t.Errorf("after a restart, what is right was written again: %q", again)
			}
		})
	}
}

func TestSetupMBps(t *testing.T) {
	t.Parallel()
	k := fake.New(fake.MBps())
	h, err := New(k, fake.Proc{Kernel: k}, true)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{Kernel: k, Host: h, t: t}
	b.setup(20000, []schemata.Class{{Name: "a", MB: rate(5003)}, {Name: "b", MB: mb(50)}})
	b.want("sluice-a", "L3:0=7ff;1=7ff\nMB:0=5003;1=5003\n")
	b.want("sluice-b", "L3:0=7ff;1=7ff\nMB:0=10000;1=10000\n")
}

// For every class, the kernel accepts and keeps what is written, and a second Setup writes
// nothing.
func TestKernelTakesAll(t *testing.T) {
	t.Parallel()
	machines := []fake.Machine{fake.Intel(), fake.CDP(), fake.Haswell(), fake.AMD()}
	rapid.Check(t, func(rt *rapid.T) {
		m := rapid.SampledFrom(machines).Draw(rt, "machine")
		k := fake.New(m)
		h, err := New(k, fake.Proc{Kernel: k}, false)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range rapid.IntRange(1, 5).Draw(rt, "times") {
			from := rapid.IntRange(0, 99).Draw(rt, "from")
			to := rapid.IntRange(from+1, 100).Draw(rt, "to")
			c := schemata.Class{Name: "c", L3: l3(from, to)}
			if m.MB != nil && rapid.Bool().Draw(rt, "limited") {
				c.MB = mb(rapid.IntRange(1, 100).Draw(rt, "percent"))
			}
			if _, err := h.Setup([]schemata.Class{c}, 100000); err != nil {
				rt.Fatalf("change %d to %+v: %v", i, c, err)
			}
			k.Writes()
			if again, err := h.Setup([]schemata.Class{c}, 100000); err != nil || again[0].Changed != "" || k.Writes() != nil {
				rt.Fatalf("%+v is not what the kernel keeps: %v", c, err)
			}
		}
	})
}

// Setup, Prune and Restore leave the groups of other programs as they are.
func TestOthersGroups(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.must(b.Mkdir("theirs"))
	b.must(b.Write("theirs/schemata", "L3:0=70\n"))
	b.setup(0, []schemata.Class{be(), {Name: "LS"}})
	b.wantGroups("sluice-BE", "sluice-LS", "theirs")
	b.must(b.Prune(nil, []string{"LS"}))
	b.wantGroups("sluice-LS", "theirs")
	b.must(b.Restore(Originals{}))
	b.wantGroups("theirs")
	b.want("theirs", "L3:0=70;1=7ff\nMB:0=100;1=100\n")
}

func TestRestore(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.must(b.Write("schemata", "L3:0=1f\n")) // written by the administrator
	b.Start(10, 10, 11)
	originals, err := b.Originals()
	b.must(err)
	b.setup(0, []schemata.Class{{Name: DefaultClass, L3: l3(50, 100), MB: mb(50)}, be()})
	b.want("", "L3:0=7c0;1=7c0\nMB:0=50;1=50\n")
	_, err = b.Own("uid", workload.RDTShare{CacheTo: 20}, 0)
	b.must(err)
	b.must(b.Assign(Place{Group: PodGroup("uid")}, 10))
	b.wantIn("sluice-pod-uid", 10, 11)
	b.restart()
	b.must(b.Restore(originals))
	b.wantGroups()
	b.wantIn("", 10, 11)
	b.want("", "L3:0=1f;1=7ff\nMB:0=100;1=100\n")
	if err := b.Restore(Originals{Default: "L3"}); err == nil || !strings.Contains(err.Error(), "record") {
		t.Errorf("a record that says nothing: %v", err)
	}
}

// If a class no longer limits a resource, Setup removes the limit from the existing group.
func TestSetupOpens(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.setup(0, []schemata.Class{be()})
	b.restart()
	b.setup(0, []schemata.Class{{Name: "BE", MB: mb(40)}})
	b.want("sluice-BE", "L3:0=7ff;1=7ff\nMB:0=40;1=40\n")
}

func TestSetupRepairs(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.Intel())
	b.setup(0, []schemata.Class{be()})
	b.must(b.Write("sluice-BE/schemata", "L3:1=7\n"))
	groups, err := b.Setup([]schemata.Class{be()}, 0)
	if b.must(err); groups[0].Changed != "L3:1=f\n" {
		t.Errorf("repaired %q, want L3:1=f alone", groups[0].Changed)
	}
	b.must(b.Rmdir("sluice-BE"))
	b.setup(0, []schemata.Class{be()})
	b.want("sluice-BE", "L3:0=f;1=f\nMB:0=90;1=90\n")
}

// exclusive returns a bed in which an exclusive group leaves other ways to the default group and
// to new groups.
func exclusive(t *testing.T) *bed {
	b := machine(t, fake.Intel())
	b.must(b.Write("schemata", "L3:0=f;1=f\n"))
	b.must(b.Mkdir("theirs"))
	b.must(b.Write("theirs/schemata", "L3:0=f0;1=f0\n"))
	b.must(b.Write("theirs/mode", "exclusive\n"))
	return b
}

func TestExclusive(t *testing.T) {
	t.Parallel()
	b := exclusive(t)
	b.setup(0, []schemata.Class{{Name: "LS", MB: mb(50)}}) // the class doesn't limit the cache
	b.want("sluice-LS", "L3:0=f;1=f\nMB:0=50;1=50\n")
	groups, err := b.Setup([]schemata.Class{{Name: "BE", L3: l3(0, 50)}}, 0)
	if groups != nil {
		t.Errorf("the groups are %+v", groups)
	}
	for _, word := range []string{"sluice-BE", "L3:0=3f;1=3f", "invalid argument", "Overlaps with exclusive group", "make the exclusive groups smaller"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v doesn't say %q", err, word)
		}
	}
	b.wantGroups("sluice-LS", "theirs") // no CLOSID is spent on a group that doesn't do what its class asks for
}

func TestErrors(t *testing.T) {
	t.Parallel()
	few := fake.Intel()
	few.CLOSIDs = 2
	unwatched := fake.Intel()
	unwatched.RMIDs = 2
	unshared := fake.Intel()
	unshared.L3.Shareable = 0
	tests := map[string]struct {
		machine fake.Machine
		before  func(*bed)
		kind    error
		errno   syscall.Errno
		says    string
	}{
		"CLOSIDs": {few, func(b *bed) { b.must(b.Mkdir("theirs")) }, ErrNoCLOSID, syscall.ENOSPC, "Out of CLOSIDs"},
		"RMIDs":   {unwatched, func(b *bed) { b.must(b.Mkdir("theirs")) }, ErrNoRMID, syscall.ENOSPC, "Out of RMIDs"},
		"limbo": {unwatched, func(b *bed) {
			b.Limbo(true)
			b.must(b.Mkdir("theirs"))
			b.must(b.Rmdir("theirs"))
		}, ErrLimbo, syscall.EBUSY, "tried again later"},
		"no space": {unshared, func(b *bed) { b.must(b.Write("mode", "exclusive\n")) }, ErrNoSpace, syscall.ENOSPC, "No space on L3:0"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := machine(t, test.machine)
			test.before(b)
			_, err := b.Own("uid", workload.RDTShare{Bandwidth: 20}, 0)
			var typed *Error
			if !errors.Is(err, test.kind) || !errors.Is(err, test.errno) || !errors.As(err, &typed) || typed.Group != "sluice-pod-uid" || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v; want %v, %v and %q", err, test.kind, test.errno, test.says)
			}
			if test.kind == ErrLimbo {
				b.Limbo(false)
				_, err = b.Own("uid", workload.RDTShare{Bandwidth: 20}, 0)
				b.must(err)
			}
		})
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	b := machine(t, fake.AMD())
	group, err := b.Own("uid", workload.RDTShare{CacheFrom: 20, CacheTo: 80, Bandwidth: 20}, 100000)
	b.must(err)
	b.want(group, "L3:0=1ff0;1=1ff0;4=1ff0;12=1ff0\nMB:0=160;1=160;4=160;12=160\nSMBA:0=160;1=160;4=160;12=160\n")
	_, err = b.Own("uid", workload.RDTShare{CacheTo: 50}, 0)
	b.must(err)
	b.want(group, "L3:0=ff;1=ff;4=ff;12=ff\nMB:0=2048;1=2048;4=2048;12=2048\nSMBA:0=2048;1=2048;4=2048;12=2048\n")
	_, err = b.Own("gone", workload.RDTShare{CacheTo: 50}, 0)
	b.must(err)
	b.restart()
	b.must(b.Prune([]string{"uid"}, nil))
	b.wantGroups("sluice-pod-uid")
	b.must(b.Release("uid"))
	b.must(b.Release("uid"))
	b.wantGroups()
	b.must(b.Mkdir("theirs"))
	b.must(b.Mkdir("sluice-pod-a"))
	for _, uid := range []string{"", "../theirs", "a/../theirs", "a\nb", "a\x00b", strings.Repeat("a", 250)} {
		if _, err := b.Own(uid, workload.RDTShare{CacheTo: 50}, 0); err == nil {
			t.Errorf("uid %q is taken", uid)
		}
		if err := b.Release(uid); err == nil {
			t.Errorf("uid %q is released", uid)
		}
	}
	b.must(b.Rmdir("theirs")) // the other program's group still exists
	b.must(b.Rmdir("sluice-pod-a"))
	small := machine(t, fake.Haswell())
	if group, err := small.Own("uid", workload.RDTShare{Bandwidth: 20}, 0); group != "" || err == nil {
		t.Errorf("a share of what isn't there is group %q, %v", group, err)
	}
	small.wantGroups()
	if group, err := small.Own("uid", workload.RDTShare{Bandwidth: 20, CacheTo: 20}, 0); group == "" || err == nil {
		t.Errorf("a share of what is there in part is group %q, %v", group, err)
	}
	small.want("sluice-pod-uid", "L3:0=f\n")
	intel := machine(t, fake.Intel())
	_, err = intel.Own("uid", workload.RDTShare{Bandwidth: 20}, 0)
	intel.must(err) // the machine has no SMBA, which is AMD's, and no error says so
}

func TestCheckClass(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"BE": true, "a.b-c": true, DefaultClass: true, "": false, "a/b": false, "..": true, "pod-x": false, "a\nb": false,
		strings.Repeat("a", 201): false,
	} {
		if err := CheckClass(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
	b := machine(t, fake.Intel())
	if _, err := b.Setup([]schemata.Class{{Name: "a/b"}, be()}, 0); err == nil {
		t.Error("a class named a/b is set up")
	}
	b.wantGroups("sluice-BE")
}
