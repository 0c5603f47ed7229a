package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func example(t *testing.T) what {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sluice")
	if err := os.WriteFile(binary, []byte("a static binary"), 0o700); err != nil {
		t.Fatal(err)
	}
	return what{binary: binary, kube: binary, name: "localhost/sluice/sluice:v1", version: "v1", revision: "abc", arch: "amd64"}
}

// The same binary results in the same archive, byte for byte.
func TestReproducible(t *testing.T) {
	t.Parallel()
	var archives [][]byte
	for range 2 {
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := write(example(t), out); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, data)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of one binary differ")
	}
}

// The image has the binaries, no shell and no other file, and its user is nobody.
func TestContents(t *testing.T) {
	t.Parallel()
	image, err := example(t).image()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers (%v), want 1", len(layers), err)
	}
	files, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	var names []string
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if header.Uid != 0 || header.Mode != 0o755 || !header.ModTime.IsZero() && header.ModTime.Unix() != 0 {
			t.Errorf("%s is of user %d, mode %o, time %s", header.Name, header.Uid, header.Mode, header.ModTime)
		}
	}
	if want := []string{"usr/", "usr/bin/", "usr/bin/sluice", "usr/bin/sluice-kube"}; !slices.Equal(names, want) {
		t.Errorf("files are %q, want %q", names, want)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65534:65534" || config.Architecture != "amd64" || !config.Created.IsZero() && config.Created.Unix() != 0 {
		t.Errorf("user %q, architecture %q, created %s", config.Config.User, config.Architecture, config.Created)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v1" {
		t.Errorf("version is %q", got)
	}
}
