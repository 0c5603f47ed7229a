package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// The bill lists each module in the binary with its version and licence.
func TestEveryModuleIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "sluice"), filepath.Join(dir, "sbom.json")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "./plugins/sluice")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := run(binary, file); err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(data, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	for _, m := range info.Deps {
		i := slices.IndexFunc(*bom.Components, func(c cyclonedx.Component) bool { return c.Name == m.Path && c.Version == m.Version })
		if i < 0 || len(*(*bom.Components)[i].Licenses) == 0 {
			t.Errorf("%s %s is in the binary and not, or without a licence, in the bill", m.Path, m.Version)
		}
	}
	if len(info.Deps) < 10 || len(*bom.Components) != len(info.Deps)+1 {
		t.Errorf("%d modules in the binary, %d in the bill", len(info.Deps), len(*bom.Components))
	}
}

func TestLicences(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"LICENSE": "Do as you like.", "README.md": "Licensed under the MIT License.",
		"COPYING": "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := licences(dir); err == nil {
			t.Errorf("%s: %q is taken", name, found)
		}
	}
	if err := check([]string{"MIT", "GPL-3.0"}); err == nil {
		t.Error("a licence is taken for its company")
	}
}
