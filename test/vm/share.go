package vm

import (
	"slices"
	"strings"
)

// share is one of the guests that run at the same time, each on a core of the
// host, and its part of test/vm/guest's tests: a test with all its subtests, or
// one subtest of TestSluice.
type share struct {
	guest   string
	systemd bool // is its first process
	tests   []string
}

// shares are all tests, dealt out so that the guests end at about the same time.
func shares() []share {
	return []share{
		{guest: "pins", tests: []string{
			"TestMachine",
			"TestCgroupfs",
			"TestSluice/first_instruction",
			"TestSluice/pages",
			"TestSluice/hotplug",
			"TestSluice/memory_hotplug",
			"TestSluice/crashes",
			"TestSluice/churn",
		}},
		{guest: "systemd", systemd: true, tests: []string{
			"TestPlacement",
			"TestSystemd",
			"TestUnit",
			"TestExclusivePools",
			"TestSluice/restore",
			"TestSluice/drift",
			"TestSluice/knobs_at_the_first_instruction",
			"TestSluice/what_this_kernel_lacks",
			"TestSluice/resize",
			"TestSluice/bursts_are_counted",
			"TestSluice/reclaim",
			"TestSluice/partition",
		}},
	}
}

// skip is the pattern for -test.skip that leaves a guest its own share. A test
// that is in none runs everywhere, and is found out by that.
func (s share) skip() string {
	var patterns []string
	for _, other := range shares() {
		for _, test := range other.tests {
			if top, _, _ := strings.Cut(test, "/"); !s.has(top) {
				test = top // it prepares for its subtests
			}
			pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
			if other.guest != s.guest && !slices.Contains(patterns, pattern) {
				patterns = append(patterns, pattern)
			}
		}
	}
	return strings.Join(patterns, "|")
}

// has tells whether a test that ran belongs to the share: it, one above it or one
// below it is listed.
func (s share) has(test string) bool {
	return slices.ContainsFunc(s.tests, func(listed string) bool {
		return strings.HasPrefix(test+"/", listed+"/") || strings.HasPrefix(listed, test+"/")
	})
}
