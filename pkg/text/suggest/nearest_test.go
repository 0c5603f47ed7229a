package suggest

import (
	"strings"
	"testing"
)

func TestTo(t *testing.T) {
	t.Parallel()
	known := []string{"class", "cpus", "cpuset", "numa", "memory-nodes", "smt"}
	for word, want := range map[string]string{
		"class":                  "class",
		"clas":                   "class",
		"klasse":                 "class",
		"cpu":                    "cpus",
		"cpusets":                "cpuset",
		"memorynodes":            "memory-nodes",
		"nmua":                   "numa",
		"":                       "",
		"entirely-different":     "",
		strings.Repeat("x", 1e6): "",
	} {
		if got := To(word, known); got != want {
			t.Errorf("To(%.40q) = %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
