package sim

import (
	"slices"
	"strings"
	"testing"
)

func TestParsePolicies(t *testing.T) {
	t.Parallel()
	if all, err := ParsePolicies(nil); err != nil || !slices.Equal(all, Policies()) {
		t.Errorf("no names are %v, %v", all, err)
	}
	if all, err := ParsePolicies(PolicyNames()[1:3]); err != nil || !slices.Equal(all, []Policy{Static, Suppression}) {
		t.Errorf("two names are %v, %v", all, err)
	}
	if _, err := ParsePolicies([]string{"pools", "best"}); err == nil || !strings.Contains(err.Error(), `policy "best"`) {
		t.Error(err)
	}
}

func TestScenariosWithNames(t *testing.T) {
	t.Parallel()
	names, all, err := ShippedScenarios()
	if err != nil || len(names) == 0 || len(names) != len(all) {
		t.Fatalf("%v, %d scenarios, %v", names, len(all), err)
	}
	for i, s := range all {
		if s == nil || s.About == "" {
			t.Errorf("%s: %+v", names[i], s)
		}
	}
}
