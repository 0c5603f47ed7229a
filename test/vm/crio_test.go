package vm

import (
	"slices"
	"strings"
	"testing"
)

// TestLibrariesOf checks that all libraries of a program are found, including the loader.
func TestLibrariesOf(t *testing.T) {
	t.Parallel()
	libraries, err := librariesOf("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/libc.so.", "/ld-linux"} {
		if !slices.ContainsFunc(libraries, func(path string) bool { return strings.Contains(path, name) }) {
			t.Errorf("%s is not among %q", name, libraries)
		}
	}
}
