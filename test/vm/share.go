package vm

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/test/vm/boot"
)

// share is one of the guests, of which as many run at the same time as the host has CPUs, with its
// part of a package's tests: a test with all its subtests, or one subtest of TestSluice.
type share struct {
	guest   string
	systemd bool          // systemd is the first process
	e2e     bool          // the tests are some of test/e2e rather than of test/vm/guest
	crio    bool          // the runtime is CRI-O; the guest is skipped if there is none
	busy    bool          // the guest has another disk, vdb, which makes busyDisk operations a second
	crun    bool          // the OCI runtime is crun, which nests cgroups under systemd, rather than runc
	machine boot.Topology // the zero value stands for the machine in TOPO
	tests   []string
}

// small is a machine of two CPUs on different cores, for which the tests of test/e2e are made. Two
// CPUs are also emulated faster than 16.
func small() boot.Topology { return boot.Topology{Sockets: 1, Dies: 1, Cores: 2, Threads: 1} }

// nodes is a machine of two NUMA nodes, which suffice for moving pages and for all knobs. Four CPUs
// are emulated in three quarters of the time that 16 take.
func nodes() boot.Topology { return boot.Topology{Sockets: 2, Dies: 1, Cores: 1, Threads: 2} }

// shares returns all guests in the order in which they start: those that take longest come first,
// so that none of them runs alone at the end. The tests of test/vm/guest are divided so that both
// of its long guests end at about the same time.
func shares() []share {
	return []share{
		{guest: "pins", tests: []string{
			"TestMachine",
			"TestCgroupfs",
			"TestCoreScheduling",
			"TestSpareCPUs",
			"TestExclusivePools",
			"TestSluice/first_instruction",
			"TestSluice/pages",
			"TestSluice/partition",
			"TestSluice/hotplug",
			"TestSluice/memory_hotplug",
			"TestSluice/crashes",
			"TestSluice/churn",
		}},
		{guest: "systemd", systemd: true, machine: nodes(), tests: []string{
			"TestPlacement",
			"TestSystemd",
			"TestUnit",
			"TestSluice/restore",
			"TestSluice/drift",
			"TestSluice/knobs_at_the_first_instruction",
			"TestSluice/what_this_kernel_lacks",
			"TestSluice/resize",
			"TestSluice/bursts_are_counted",
			"TestSluice/reclaim",
		}},
		{guest: "slow", busy: true, machine: nodes(), tests: []string{
			"TestDemo",
			"TestIOCost",
			"TestIdleIO",
			"TestSluice/moving_pages",
			"TestSluice/reclaiming_limit",
		}},
		{guest: "loop", e2e: true, machine: small(), tests: append(loop(), "TestSwap", "TestOffload")},
		{guest: "loop-systemd", systemd: true, e2e: true, machine: small(), tests: loop()[:driven]},
		{guest: "crio", crio: true, e2e: true, machine: small(), tests: crio()},
		{guest: "crio-systemd", crio: true, systemd: true, e2e: true, machine: small(), tests: crio()},
		{guest: "crio-crun", crio: true, crun: true, systemd: true, e2e: true, machine: small(), tests: append(crio(), "TestLoopCRIO/a_bound_on_waiting_squeezes_batch")},
	}
}

// loop lists the tests of the control loop that depend on the kernel's cgroup version; the first
// ones, of the number driven, depend on the driver, too.
func loop() []string { return loopOf("TestLoop") }

const driven = 3

func loopOf(test string) []string {
	return []string{
		test + "/batch_gives_way_by_quota",
		test + "/a_limit_is_raised_and_resized",
		test + "/the_plugin_dies_or_stalls",
		test + "/memory_is_taken_back_from_batch",
		test + "/memory_evicts_batch",
		test + "/the_switch_closes_batch",
	}
}

// crio lists the tests on CRI-O.
func crio() []string {
	return append([]string{
		"TestBed/CRI-O",
		"TestPlacement/CRI-O",
		"TestEvict/CRI-O",
		"TestPreInstalled/CRI-O",
		"TestUntouched/CRI-O",
		"TestReload/CRI-O",
		"TestLife/CRI-O",
		"TestKnobs/CRI-O",
	}, loopOf("TestLoopCRIO")...)
}

// binary returns the path of the guest's test program.
func (s share) binary() string {
	if s.e2e {
		return "e2e.test"
	}
	return "guest.test"
}

// selection returns the test binary's flag that selects a guest's share. A test of test/vm/guest
// that is in no share runs in every guest, which makes the test below fail.
func (s share) selection() string {
	if s.e2e {
		var patterns []string
		for _, test := range s.tests {
			patterns = append(patterns, pattern(test))
		}
		return "-test.run=" + strings.Join(patterns, "|")
	}
	return "-test.skip=" + s.skip()
}

// pattern returns the testing package's pattern of exactly one test.
func pattern(test string) string { return "^" + strings.ReplaceAll(test, "/", "$/^") + "$" }

// skip returns the pattern of all tests of test/vm/guest that belong to other guests.
func (s share) skip() string {
	var patterns []string
	for _, other := range shares() {
		if other.e2e {
			continue
		}
		for _, test := range other.tests {
			if top, _, _ := strings.Cut(test, "/"); !s.has(top) {
				test = top // runs the preparation for its subtests
			}
			if other.guest != s.guest && !slices.Contains(patterns, pattern(test)) {
				patterns = append(patterns, pattern(test))
			}
		}
	}
	return strings.Join(patterns, "|")
}

// has reports whether a test that ran belongs to the share, because it, a test above it or one
// below it is listed.
func (s share) has(test string) bool {
	return slices.ContainsFunc(s.tests, func(listed string) bool {
		return strings.HasPrefix(test+"/", listed+"/") || strings.HasPrefix(listed, test+"/")
	})
}
