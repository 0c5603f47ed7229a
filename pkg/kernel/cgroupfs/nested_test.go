package cgroupfs_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

// TestNested checks that values of the inner cgroup that crun makes count as much as those of its
// scope.
func TestNested(t *testing.T) {
	t.Parallel()
	const inner = ctr + "/container"
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2(), fakekernel.OldMainlineV2()} {
		for _, looked := range []bool{true, false} { // `sluice restore` and the failsafe have not called Nest before
			m := boot(t, f)
			m.Mkdir(inner)
			if err := m.Populate(inner, 1); err != nil {
				t.Fatal(err)
			}
			if looked {
				m.Nest(ctr)
			}
			quota := func(n int) knobs.CPUQuota {
				return knobs.CPUQuota{Quota: time.Duration(n) * 100 * ms, Period: 100 * ms}
			}
			for file, text := range limitFiles(f) { // as a runtime does that limits the outer level, too
				if err := m.WriteFile(ctr, file, text); err != nil {
					t.Fatal(err)
				}
			}
			for _, to := range []struct {
				knob  knobs.Knob
				value knobs.Value
			}{
				{knobs.CPUs, knobs.CPUSet(cpuset.Of(4, 5))},
				{knobs.CPUs, knobs.CPUSet(cpuset.Of(1))}, // disjoint from the set before
				{knobs.CPUs, knobs.CPUSet(cpuset.Range(0, 6))},
				{knobs.Quota, quota(2)},
				{knobs.Quota, quota(1)},
				{knobs.Quota, quota(3)},
				{knobs.Burst, knobs.CPUBurst(50 * ms)},
				{knobs.MemoryMax, knobs.Bytes(64 << 20)},
				{knobs.MemoryMax, knobs.Bytes(128 << 20)},
			} {
				m.apply(set(ctr, to.knob, to.value))
				for _, dir := range []string{ctr, inner} {
					if have := m.read(dir, to.knob); !m.Same(to.knob, to.value, have) {
						t.Errorf("%s, looked %t: %s of %s is %s, want %s", f.Name, looked, to.knob, dir, have, to.value)
					}
				}
			}
			// Read returns a value of the inner cgroup that differs.
			m.apply(set(pod, knobs.CPUs, knobs.CPUSet{}))
			if err := m.WriteFile(inner, "cpuset.cpus", "2"); err != nil {
				t.Fatal(err)
			}
			if have := m.read(ctr, knobs.CPUs); have != knobs.Value(knobs.CPUSet(cpuset.Of(2))) {
				t.Errorf("%s: the container shows %s, and its processes have 2", f.Name, have)
			}
			// Read also returns a value of the outer cgroup that differs, whether it is higher or
			// lower.
			m.apply(set(ctr, knobs.CPUs, knobs.CPUSet(cpuset.Of(4, 5))), set(ctr, knobs.Quota, quota(2)))
			for knob, other := range map[knobs.Knob]struct {
				file, text string
				value      knobs.Value
			}{
				knobs.CPUs:  {"cpuset.cpus", "2-5", knobs.CPUSet(cpuset.Range(2, 5))},
				knobs.Quota: {map[bool]string{true: "cpu.max", false: "cpu.cfs_quota_us"}[f.V2], map[bool]string{true: "400000 100000", false: "400000"}[f.V2], quota(4)},
			} {
				if err := m.WriteFile(ctr, other.file, other.text); err != nil {
					t.Fatal(err)
				}
				if have := m.read(ctr, knob); have != other.value {
					t.Errorf("%s: the container shows %s of %s, and its outer level has %s", f.Name, have, knob, other.value)
				}
			}
			m.apply(set(ctr, knobs.CPUs, knobs.CPUSet(cpuset.Range(0, 6))))
			if err := m.WriteFile(inner, "cpuset.cpus", "2"); err != nil {
				t.Fatal(err)
			}
			m.Forget(ctr)
			if have := m.read(ctr, knobs.CPUs); have != knobs.Value(knobs.CPUSet(cpuset.Range(0, 6))) {
				t.Errorf("%s: forgotten, and it shows %s", f.Name, have)
			}
		}
	}
}

// TestNestedThrottling checks that throttling by the inner quota counts as much as by the outer
// one; only one of them throttles at a time.
func TestNestedThrottling(t *testing.T) {
	t.Parallel()
	const inner = ctr + "/container"
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		m := boot(t, f)
		m.Mkdir(inner)
		if err := m.Populate(inner, 1); err != nil {
			t.Fatal(err)
		}
		m.Nest(ctr)
		m.Count(ctr, fakekernel.Counters{CPU: 9e9, Periods: 20, Throttled: 1, ThrottledTime: 1e9})
		m.Count(inner, fakekernel.Counters{CPU: 9e9, Periods: 18, Throttled: 6, ThrottledTime: 2e9})
		var usage observe.CPUCounters
		var quota observe.ThrottlingCounters
		counted, err := m.CPU(ctr, &usage, &quota)
		if want := (observe.ThrottlingCounters{Periods: 20, Throttled: 6, Time: 3 * time.Second}); !counted || err != nil || quota != want || usage.Usage != 9*time.Second {
			t.Errorf("%s: %v %v, %t, %v; want %v", f.Name, usage.Usage, quota, counted, err, want)
		}
	}
}

// TestNestedThreads checks that the threads of the inner cgroup, which has all processes of a
// container that crun runs, count as the container's.
func TestNestedThreads(t *testing.T) {
	t.Parallel()
	const inner = ctr + "/container"
	for _, f := range []fakekernel.Flavour{fakekernel.MainlineV1(), fakekernel.MainlineV2()} {
		m := boot(t, f)
		m.Mkdir(inner)
		if err := m.Populate(inner, 1); err != nil {
			t.Fatal(err)
		}
		m.Nest(ctr)
		m.Count(inner, fakekernel.Counters{Threads: []int{41, 42}})
		var threads []int
		if err := m.Threads(ctr, func(id int) { threads = append(threads, id) }); err != nil || !slices.Equal(threads, []int{41, 42}) {
			t.Errorf("%s: threads %v, %v", f.Name, threads, err)
		}
	}
}

// TestNotNested checks that cgroups which a container has made beside its own processes, or
// several of them, are left alone.
func TestNotNested(t *testing.T) {
	t.Parallel()
	for name, nest := range map[string]func(m machine) error{
		"own processes": func(m machine) error { m.Mkdir(ctr + "/a"); return m.Populate(ctr, 1) },
		"several":       func(m machine) error { m.Mkdir(ctr + "/a"); m.Mkdir(ctr + "/b"); return m.Populate(ctr+"/a", 1) },
	} {
		m := boot(t, fakekernel.MainlineV2())
		if err := nest(m); err != nil {
			t.Fatal(err)
		}
		m.Nest(ctr)
		limit := knobs.CPUQuota{Quota: 100 * ms, Period: 100 * ms}
		m.apply(set(ctr, knobs.Quota, limit))
		if have := m.read(ctr+"/a", knobs.Quota); m.Same(knobs.Quota, limit, have) {
			t.Errorf("%s: the nested cgroup has the container's quota", name)
		}
	}
}

// limitFiles returns the files of a flavour that limit a cgroup to 5 CPUs and 512 MiB.
func limitFiles(f fakekernel.Flavour) map[string]string {
	if f.V2 {
		return map[string]string{"cpu.max": "500000 100000", "memory.max": "536870912"}
	}
	return map[string]string{"cpu.cfs_quota_us": "500000", "memory.limit_in_bytes": "536870912"}
}

// TestNestedWithoutOuterLimit checks that a limit which the runtime has set only on the inner
// cgroup is changed only there, because the runtime's next limit is written only there.
func TestNestedWithoutOuterLimit(t *testing.T) {
	t.Parallel()
	const inner = ctr + "/container"
	m := boot(t, fakekernel.MainlineV2())
	m.Mkdir(inner)
	write := func(file, text string) {
		t.Helper()
		if err := m.WriteFile(inner, file, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Populate(inner, 1); err != nil {
		t.Fatal(err)
	}
	write("cpu.max", "100000 100000")
	write("memory.max", "67108864")
	write("memory.min", "67108864")
	m.Nest(ctr)
	one, two := knobs.CPUQuota{Quota: 100 * ms, Period: 100 * ms}, knobs.CPUQuota{Quota: 200 * ms, Period: 100 * ms}
	have := func(knob knobs.Knob, want knobs.Value) {
		t.Helper()
		if got := m.read(ctr, knob); !m.Same(knob, want, got) {
			t.Errorf("it shows %s as %s, want %s", knob, got, want)
		}
	}
	have(knobs.Quota, one)
	have(knobs.MemoryMax, knobs.Bytes(64<<20))
	have(knobs.MemoryMin, knobs.Bytes(0)) // the outer cgroup has no protection
	m.apply(
		set(ctr, knobs.Quota, two), set(ctr, knobs.Quota, one),
		set(ctr, knobs.MemoryMax, knobs.Bytes(32<<20)), set(ctr, knobs.MemoryMax, knobs.Bytes(64<<20)),
		set(ctr, knobs.MemoryMin, knobs.Bytes(64<<20)),
	)
	m.shows(ctr, "cpu.max", "max 100000")
	m.shows(ctr, "memory.max", "max")
	m.shows(ctr, "memory.min", "67108864")
	write("cpu.max", "200000 100000") // an update by the runtime
	write("memory.max", "134217728")
	have(knobs.Quota, two)
	have(knobs.MemoryMax, knobs.Bytes(128<<20))
}

// TestNestedUnasked checks that for sets which nobody has requested Read returns what the
// processes may use.
func TestNestedUnasked(t *testing.T) {
	t.Parallel()
	const inner = ctr + "/container"
	for _, c := range []struct{ outer, inner, shows string }{
		{"0-3", "2", "2"}, {"2", "0-3", "2"}, {"2", "3", "2"}, {"2", "2", "2"},
	} {
		m := boot(t, fakekernel.MainlineV2())
		m.Mkdir(inner)
		if err := errors.Join(m.Populate(inner, 1), m.WriteFile(ctr, "cpuset.cpus", c.outer), m.WriteFile(inner, "cpuset.cpus", c.inner)); err != nil {
			t.Fatal(err)
		}
		m.Nest(ctr)
		if have := m.read(ctr, knobs.CPUs).String(); have != c.shows {
			t.Errorf("with %s above %s it shows %s, want %s", c.outer, c.inner, have, c.shows)
		}
	}
}
