package runtime

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/host"
)

// importImage gives containerd an image that contains only the probe, which sleeps as a pod's
// sandbox.
func (rt *Runtime) importImage() error {
	probe, err := os.ReadFile(rt.tools.of("", "probe"))
	if err != nil {
		return err
	}
	archive, err := dockerArchive(probe)
	if err != nil {
		return err
	}
	path := filepath.Join(rt.Dir, "image.tar")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		return err
	}
	ctr := exec.Command(rt.tools.of(rt.options.Containerd, "ctr"), "--address", rt.socket(), "--namespace", "k8s.io",
		"images", "import", "--local", "--snapshotter", snapshotter(), path)
	if out, err := ctr.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr images import: %w: %s", err, out)
	}
	// CRI is informed of the image by an event; a pod before that would pull the image.
	return rt.process.Await("CRI to know the image "+image, func() error {
		ctx, cancel := host.CallContext()
		defer cancel()
		status, err := rt.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		if err == nil && status.GetImage() == nil {
			err = errors.New("not there yet")
		}
		return err
	})
}

// dockerArchive returns an image in the format of `docker save`, with one layer.
func dockerArchive(probe []byte) ([]byte, error) {
	layer, err := tarOf(file{"probe", probe})
	if err != nil {
		return nil, err
	}
	config, err := imageConfig(layer)
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{image}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return nil, err
	}
	return tarOf(file{"config.json", config}, file{"layer.tar", layer}, file{"manifest.json", manifest})
}

// imageConfig returns the configuration of an image with that layer.
func imageConfig(layer []byte) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": goruntime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/probe"}, "Cmd": []string{"sleep"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
}

type file struct {
	name string
	data []byte
}

func tarOf(files ...file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
