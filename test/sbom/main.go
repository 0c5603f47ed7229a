// Command sbom writes the bill of materials of a Go binary in CycloneDX's JSON: each
// module in it, with the licences found in the module's folder. It fails where one is
// missing or is none that may be shipped under Apache-2.0.
//
//	sbom BINARY FILE
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY FILE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// allowed lists the SPDX names of licences that demand no more than their notice.
func allowed() []string {
	return []string{"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC"}
}

func run(binary, file string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	dirs, err := folders(info.Deps)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	main := component(info.Main.Path, info.Main.Version, []string{"Apache-2.0"})
	main.Type = cyclonedx.ComponentTypeApplication
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	components := []cyclonedx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"), []string{"BSD-3-Clause"})}
	var errs []error
	for _, m := range info.Deps {
		found, err := licences(dirs[m.Path])
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
		components = append(components, component(m.Path, m.Version, found))
	}
	bom.Components = &components
	if err := errors.Join(errs...); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return errors.Join(encoder.Encode(bom), out.Close())
}

func component(path, version string, licences []string) cyclonedx.Component {
	var choices cyclonedx.Licenses
	for _, id := range licences {
		choices = append(choices, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	purl := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{BOMRef: purl, PackageURL: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, Licenses: &choices}
}

// folders returns the modules' folders in Go's module cache.
func folders(modules []*debug.Module) (map[string]string, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		if m.Replace != nil {
			return nil, fmt.Errorf("%s is replaced by %s: who installs by the module gets another binary", m.Path, m.Replace.Path)
		}
		args = append(args, m.Path+"@"+m.Version)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the modules' licences: %w", err)
	}
	dirs := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return dirs, nil
		}
		if err != nil {
			return nil, err
		}
		dirs[m.Path] = m.Dir
	}
}

// licences returns the licences of the texts in a module's folder.
func licences(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	name := regexp.MustCompile(`(?i)^(licen[cs]e|copying)(-.+)?(\.(md|txt))?$`)
	var found []string
	for _, e := range entries {
		if !e.Type().IsRegular() || !name.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		for _, m := range licensecheck.Scan(text).Match {
			found = append(found, m.ID)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return found, check(found)
}

func check(found []string) error {
	for _, id := range found {
		if !slices.Contains(allowed(), id) {
			return fmt.Errorf("has the licence %s, which is none of %s", id, strings.Join(allowed(), ", "))
		}
	}
	if cmp.Or(found...) == "" {
		return errors.New("has no licence that is known")
	}
	return nil
}
