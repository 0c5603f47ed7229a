package vm

import (
	"slices"
	"strings"
	"testing"
)

// own returns the shares with tests of test/vm/guest.
func own() []share {
	return slices.DeleteFunc(shares(), func(s share) bool { return s.e2e })
}

// TestShares checks that no test is in the shares of two guests, and none below another's.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, s := range own() {
		for _, other := range own() {
			for _, test := range other.tests {
				if s.guest != other.guest && slices.ContainsFunc(s.tests, func(own string) bool {
					return strings.HasPrefix(test+"/", own+"/")
				}) {
					t.Errorf("%s would run in guests %s and %s", test, s.guest, other.guest)
				}
			}
		}
	}
}

// TestShareSkips checks that each guest's pattern matches exactly the tests of others.
func TestShareSkips(t *testing.T) {
	t.Parallel()
	for _, s := range own() {
		skipped := strings.Split(s.skip(), "|")
		for _, other := range own() {
			for _, test := range other.tests {
				top, _, _ := strings.Cut(test, "/")
				skips := slices.Contains(skipped, "^"+top+"$") || slices.Contains(skipped, "^"+strings.ReplaceAll(test, "/", "$/^")+"$")
				if skips != (other.guest != s.guest) {
					t.Errorf("guest %s skips %s of %s: %t", s.guest, test, other.guest, skips)
				}
			}
		}
	}
}

func TestShareHas(t *testing.T) {
	t.Parallel()
	s := share{tests: []string{"TestA", "TestB/one"}}
	for test, want := range map[string]bool{
		"TestA": true, "TestA/x": true, "TestB": true, "TestB/one": true, "TestB/one/x": true,
		"TestAx": false, "TestB/two": false, "TestB/one_more": false, "TestC": false,
	} {
		if got := s.has(test); got != want {
			t.Errorf("%s is in the share: %t", test, got)
		}
	}
}

// TestShareOfOthersTests checks that the pattern selects exactly the listed subtests.
func TestShareOfOthersTests(t *testing.T) {
	t.Parallel()
	s := share{e2e: true, tests: []string{"TestA/one", "TestB/two_more"}}
	if got, want := s.selection(), "-test.run=^TestA$/^one$|^TestB$/^two_more$"; got != want {
		t.Errorf("the flag is %s, want %s", got, want)
	}
}
