package sim

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed scenarios/*.yaml
var shipped embed.FS

// Shipped lists the names of the scenarios in the program.
func Shipped() []string {
	files, err := fs.Glob(shipped, "scenarios/*.yaml")
	if err != nil {
		panic(err) // the pattern is valid
	}
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(path.Base(file), ".yaml")
	}
	slices.Sort(names)
	return names
}

// Text returns the file of a shipped scenario.
func Text(name string) ([]byte, error) {
	if !slices.Contains(Shipped(), name) {
		return nil, fmt.Errorf("no scenario named %.80q comes with sluice: there are %s; name a file with -f", name, strings.Join(Shipped(), ", "))
	}
	return shipped.ReadFile("scenarios/" + name + ".yaml")
}

// ShippedScenarios returns the names and the scenarios in the program.
func ShippedScenarios() (names []string, all []*Scenario, err error) {
	names = Shipped()
	all = make([]*Scenario, len(names))
	for i, name := range names {
		text, err := Text(name)
		if err == nil {
			all[i], err = Parse(text)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return names, all, nil
}
