package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestV1SetReachesTheProcess(t *testing.T) {
	t.Parallel()
	k := twoCPUs(t)
	dir := k.child("ctr", "0-1")
	pid, _ := k.process(dir)
	k.put(dir, knobs.CPUs, "1")
	k.want(dir, "1")
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "Cpus_allowed_list:\t1\n") {
		t.Errorf("the process may not run on CPU 1 alone:\n%s", status)
	}
	k.put(dir, knobs.CPUs, "") // sets all of the parent's CPUs
	k.want(dir, "0-1")
}

func TestV1NestedCgroupsFollow(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                 string
		parent, child, grand string // initial sets; "" for a new cgroup, which has none
		to                   string
		wantChild, wantGrand string
	}{
		{"shrink", "0-1", "0-1", "0-1", "0", "0", "0"},
		{"shrink keeps what is left", "0-1", "0-1", "1", "1", "1", "1"},
		{"shrink leaves nothing", "0-1", "0", "0", "1", "1", "1"},
		{"shrink beside", "0-1", "1", "1", "1", "1", "1"},
		{"widen, all stay all", "0", "0", "0", "0-1", "0-1", "0-1"},
		{"widen from all", "0", "0", "0", "", "0-1", "0-1"},
		{"move", "0", "0", "0", "1", "1", "1"},
		{"same, narrower child", "0-1", "0", "0", "0-1", "0", "0"},
		{"just made", "0-1", "0-1", "", "0", "0", "all"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			k := twoCPUs(t)
			dir := k.child("ctr", test.parent)
			child := k.child("ctr/docker", test.child)
			grand := k.child("ctr/docker/inner", test.grand)
			if test.grand != "" {
				k.process(grand)
			}
			k.put(dir, knobs.CPUs, test.to)
			want := test.to
			if want == "" {
				want = "0-1"
			}
			k.want(dir, want)
			k.want(child, test.wantChild)
			k.want(grand, test.wantGrand)
		})
	}
}

func TestV1Quota(t *testing.T) {
	t.Parallel()
	ms := func(quota, period time.Duration) knobs.CPUQuota {
		return knobs.CPUQuota{Quota: quota * time.Millisecond, Period: period * time.Millisecond}
	}
	unlimited := knobs.CPUQuota{Quota: -1, Period: 100 * time.Millisecond}
	tests := []struct {
		name            string
		pod, ctr        knobs.CPUQuota
		changePod       bool
		to              knobs.CPUQuota
		wantPod, wantCT knobs.CPUQuota
		kind            error
	}{
		{"lower", ms(100, 100), ms(100, 100), false, ms(50, 100), ms(100, 100), ms(50, 100), nil},
		{"unlimited keeps the period", ms(100, 100), ms(50, 50), false, knobs.CPUQuota{Quota: -1}, ms(100, 100), knobs.CPUQuota{Quota: -1, Period: 50 * time.Millisecond}, nil},
		{"unlimited with a period", ms(100, 100), ms(50, 50), false, unlimited, ms(100, 100), unlimited, nil},
		{"shorter period at the parent's bound", ms(100, 100), ms(100, 100), false, ms(50, 50), ms(100, 100), ms(50, 50), nil},
		{"longer period at the child's bound", ms(100, 100), ms(100, 100), true, ms(200, 200), ms(200, 200), ms(100, 100), nil},
		{"more than the parent", ms(100, 100), ms(50, 100), false, ms(150, 100), ms(100, 100), ms(50, 100), ErrConstraint},
		{"more than the parent, new period", ms(100, 100), ms(50, 100), false, ms(300, 200), ms(100, 100), ms(50, 100), ErrConstraint},
		{"less than the child", ms(100, 100), ms(80, 100), true, ms(50, 100), ms(100, 100), ms(80, 100), ErrConstraint},
		{"a period out of range", ms(100, 100), ms(50, 100), false, ms(2, 2000), ms(100, 100), ms(50, 100), ErrConstraint},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			k := realV1(t)
			ctr := k.child("ctr", "")
			if err := k.Apply([]knobs.Change{change(k.dir, knobs.Quota, test.pod), change(ctr, knobs.Quota, test.ctr)}); err != nil {
				t.Fatal(err)
			}
			dir := ctr
			if test.changePod {
				dir = k.dir
			}
			err := k.Apply([]knobs.Change{change(dir, knobs.Quota, test.to)})
			if !errors.Is(err, test.kind) || test.kind != nil && !errors.Is(err, syscall.EINVAL) {
				t.Errorf("got error %v, want %v", err, test.kind)
			}
			for dir, want := range map[string]knobs.CPUQuota{k.dir: test.wantPod, ctr: test.wantCT} {
				now, err := k.Read(dir, knobs.Quota)
				if err != nil {
					t.Fatal(err)
				}
				if got := now.(knobs.CPUQuota); got.Unlimited() != want.Unlimited() || got.Period != want.Period || !got.Unlimited() && got != want {
					t.Errorf("%s has %+v, want %+v", dir, got, want)
				}
			}
		})
	}
}

func TestV1Errors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		knob  knobs.Knob
		to    knobs.Value
		kind  error
		errno syscall.Errno
	}{
		"beyond the parent":      {knobs.CPUs, set("0-1"), ErrOrder, syscall.EACCES},
		"a CPU that can't exist": {knobs.CPUs, set("4095"), ErrConstraint, syscall.ERANGE},
		"an absent node":         {knobs.Mems, set("1000"), ErrConstraint, syscall.EINVAL},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := twoCPUs(t)
			k.put(k.dir, knobs.CPUs, "0")
			dir := k.child("ctr", "0")
			good := k.child("good", "")
			err := k.Apply([]knobs.Change{change(dir, test.knob, test.to), change(good, knobs.CPUs, set("0"))})
			var failed *ChangeError
			if !errors.As(err, &failed) || failed.Change.Object.Path != dir || !errors.Is(err, test.kind) || !errors.Is(err, test.errno) {
				t.Errorf("got %v; want a ChangeError of %s with %v and %v", err, dir, test.kind, test.errno)
			}
			for _, word := range []string{test.knob.String(), "ns/pod/ctr", dir, test.to.String(), "the old value stays"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q doesn't say %q", err, word)
				}
			}
			k.want(dir, "0")
			k.want(good, "0")
		})
	}
}

func TestV1GoneAndUnsupported(t *testing.T) {
	t.Parallel()
	k := twoCPUs(t)
	gone := k.dir + "/gone"
	for _, knob := range []knobs.Knob{knobs.CPUs, knobs.Quota} {
		to := knobs.Value(set("0"))
		if knob == knobs.Quota {
			to = knobs.CPUQuota{Quota: -1}
		}
		if err := k.Apply([]knobs.Change{change(gone, knob, to)}); !errors.Is(err, ErrGone) {
			t.Errorf("%v of a cgroup that is gone: %v, want ErrGone", knob, err)
		}
		if _, err := k.Read(gone, knob); !errors.Is(err, ErrGone) {
			t.Errorf("%v of a cgroup that is gone: %v, want ErrGone", knob, err)
		}
	}
	if err := write(k.cpuset, k.dir, "cpuset.none", "0"); !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrGone) {
		t.Errorf("a file that isn't there: %v, want ErrUnsupported", err)
	}
	if c, err := k.cpuset.open("/.."); err == nil {
		t.Errorf("a path left the tree: %v", c)
	}

	dir := k.child("removed", "0")
	c, err := k.cpuset.open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.release()
	f, err := c.folder.Open("cpuset.cpus")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	k.remove(dir)
	if _, err := f.ReadAt(make([]byte, 10), 0); !errors.Is(err, syscall.ENODEV) || !errors.Is(c.missing(err), ErrGone) {
		t.Errorf("a cgroup removed while its file was open: %v, want ENODEV and ErrGone", err)
	}
	if err := c.write("cpuset.cpus", "0"); !errors.Is(err, ErrGone) {
		t.Errorf("a cgroup removed while it was open: %v, want ErrGone", err)
	}
}

// A pod's new set removes from its containers the CPUs that it lacks, and gives them none, because
// the new CPUs may be another container's.
func TestV1PodsContainersDontFollow(t *testing.T) {
	t.Parallel()
	k := twoCPUs(t)
	pod := k.child("pod", "0")
	ctr := k.child("pod/ctr", "0")
	for _, step := range []struct{ pod, ctr string }{{"0-1", "0"}, {"0", "0"}, {"1", "1"}} {
		c := change(pod, knobs.CPUs, set(step.pod))
		c.Object.Level = knobs.PodLevel
		if err := k.Apply([]knobs.Change{c}); err != nil {
			t.Fatal(err)
		}
		k.want(pod, step.pod)
		k.want(ctr, step.ctr)
	}
}

// The container can grow only after its pod, which is later in the list.
func TestV1ApplyTriesOnceMore(t *testing.T) {
	t.Parallel()
	k := twoCPUs(t)
	pod := k.child("pod", "0")
	ctr := k.child("pod/ctr", "0")
	grow := change(pod, knobs.CPUs, set("0-1"))
	grow.Object.Level = knobs.PodLevel
	if err := k.Apply([]knobs.Change{change(ctr, knobs.CPUs, set("0-1")), grow}); err != nil {
		t.Error(err)
	}
	k.want(ctr, "0-1")
	k.want(pod, "0-1")
}

func TestV1ParentWithNothing(t *testing.T) {
	t.Parallel()
	k := twoCPUs(t)
	k.child("new", "") // a new v1 cgroup has no CPUs
	dir := k.child("new/ctr", "")
	if err := k.Apply([]knobs.Change{change(dir, knobs.CPUs, set(""))}); !errors.Is(err, ErrEmpty) {
		t.Errorf("all of a parent that has nothing: %v, want ErrEmpty", err)
	}
}

func TestV1Populated(t *testing.T) {
	t.Parallel()
	k := realV1(t)
	k.child("empty", "0")
	k.child("ctr", "0")
	inner := k.child("ctr/inner", "0")
	check := func(dir string, want bool) {
		t.Helper()
		if got, err := k.Populated(dir); err != nil || got != want {
			t.Errorf("%s is populated: %v, %v; want %v", dir, got, err, want)
		}
	}
	check(k.dir, false)
	_, end := k.process(inner)
	check(inner, true)
	check(k.dir, true)
	check(k.dir+"/empty", false)
	end()
	check(k.dir, false)
	check(k.dir+"/gone", false)
}

// TestV1GiveBack makes the tree as hotplug leaves it: an online CPU is missing from the cgroups
// above a container.
func TestV1GiveBack(t *testing.T) {
	t.Parallel()
	k := twoCPUs(t)
	pod := k.child("pod", "0")
	k.child("pod/ctr", "0")
	if err := k.GiveBack(pod, cpuset.Of(1)); err != nil {
		t.Fatal(err)
	}
	k.want(pod, "0-1")
	k.want(pod+"/ctr", "0") // the container's own set belongs to its owner
	if err := k.GiveBack(pod+"/gone", cpuset.Of(1)); err != nil {
		t.Errorf("a cgroup that is gone: %v", err)
	}
	if err := k.GiveBack(pod, cpuset.Of(4000)); err != nil {
		t.Errorf("a CPU that nobody above has: %v", err)
	}
	k.want(pod, "0-1")
}

// TestV1Rejoin has processes where the kernel puts them when their cpuset has lost its last CPU:
// in an ancestor's cpuset, but still in their own cgroup of every other hierarchy.
func TestV1Rejoin(t *testing.T) {
	t.Parallel()
	k := realV1(t)
	ctr, nested := k.child("ctr", ""), k.child("ctr/docker", "")
	k.put(ctr, knobs.CPUs, "")
	k.put(ctr, knobs.Mems, "")
	inCPUs, _ := k.process(k.dir)
	inNested, _ := k.process(k.dir)
	for pid, dir := range map[int]string{inCPUs: ctr, inNested: nested} {
		if err := write(k.cpu, dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			t.Fatal(err)
		}
	}
	if populated, err := k.Populated(ctr); err != nil || !populated {
		t.Errorf("populated: %t, %v; want true", populated, err)
	}
	moved, err := k.Rejoin(ctr)
	if moved != 2 || err != nil {
		t.Fatalf("moved %d, %v; want 2", moved, err)
	}
	in := processes{file: procsFile}
	if err := in.in(k.cpuset, ctr); err != nil {
		t.Fatal(err)
	}
	slices.Sort(in.pids)
	if want := []int{min(inCPUs, inNested), max(inCPUs, inNested)}; !slices.Equal(in.pids, want) {
		t.Errorf("%v are in the cpuset, want %v", in.pids, want)
	}
	if moved, err := k.Rejoin(ctr); moved != 0 || err != nil {
		t.Errorf("moved %d more, %v", moved, err)
	}
}
