// Command image writes an image with two static binaries as an OCI archive, which
// `ctr images import`, podman and skopeo read. The same binaries make the same archive.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// what describes the image: its contents and its name.
type what struct {
	binary, kube, name, version, revision, arch string
}

func main() {
	var w what
	flag.StringVar(&w.binary, "binary", "bin/sluice", "static `file`")
	flag.StringVar(&w.kube, "kube", "bin/sluice-kube", "static `file` of sluice-kube")
	flag.StringVar(&w.name, "name", "", "the image's name, with its tag")
	flag.StringVar(&w.version, "version", "", "of the binary")
	flag.StringVar(&w.revision, "revision", "", "of the source")
	flag.StringVar(&w.arch, "arch", "amd64", "of the binary, as Go calls it")
	out := flag.String("o", "bin/sluice-image.tar", "`file` to write")
	flag.Parse()
	if err := write(w, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write writes the archive and prints the image's digest.
func write(w what, out string) error {
	image, err := w.image()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover folder in /tmp does no harm
	if err := w.layOut(image, dir); err != nil {
		return err
	}
	archive, err := archived(dir)
	if err != nil {
		return err
	}
	fmt.Println(w.name, digest)
	return os.WriteFile(out, archive, 0o644) //nolint:gosec // anybody may read an image
}

// image has one layer with two files. Its user is nobody, which is enough for all
// commands but those that read and write cgroups: the DaemonSet makes it root.
func (w what) image() (v1.Image, error) {
	layer, err := w.layer()
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", w.arch
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/sluice"},
		Cmd:        []string{"run"},
		Env:        []string{"PATH=/usr/bin"},
		User:       "65534:65534",
		Labels: map[string]string{
			"org.opencontainers.image.title":    "sluice",
			"org.opencontainers.image.source":   "https://github.com/sluice-dev/sluice",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  w.version,
			"org.opencontainers.image.revision": w.revision,
		},
	}
	return mutate.ConfigFile(image, config)
}

// layer has the binaries in /usr/bin, without a time.
func (w what) layer() (v1.Layer, error) {
	var files bytes.Buffer
	t := tar.NewWriter(&files)
	for _, folder := range []string{"usr/", "usr/bin/"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, program := range []struct{ name, file string }{{"sluice", w.binary}, {"sluice-kube", w.kube}} {
		binary, err := os.ReadFile(program.file)
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/" + program.name, Mode: 0o755, Size: int64(len(binary))}
		if err := t.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := t.Write(binary); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// layOut writes the image as a folder in OCI layout, under its name.
func (w what) layOut(image v1.Image, dir string) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendImage(image, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          w.name,
		"org.opencontainers.image.ref.name": w.version,
	}), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: w.arch}))
}

// archived returns a folder as a tar archive, sorted by name and without timestamps.
func archived(dir string) ([]byte, error) {
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name) //nolint:gosec // a folder of the image that this process has made
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if err := t.WriteHeader(&tar.Header{Name: below, Mode: 0o644, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = t.Write(data)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = t.Close()
	return out.Bytes(), err
}
