package runtime

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/host"
)

// pullImage serves the image from a registry on the loopback interface during the pull, and starts
// CRI-O with that registry. CRI can't import an image, and CRI-O has no client like ctr.
func (rt *Runtime) pullImage() error {
	probe, err := os.ReadFile(rt.tools.of("", "probe"))
	if err != nil {
		return err
	}
	blobs, manifest, err := registryImage(probe)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, name, _ := strings.Cut(r.URL.Path, "/blobs/")
			blob, found := blobs[name]
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.Header().Set("Content-Type", manifestType)
				blob, found = manifest, true
			}
			if !found && r.URL.Path != "/v2/" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write(blob)
		}))
	}()
	mirror := fmt.Sprintf("[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n", "localhost/sluice", listener.Addr().String()+"/sluice")
	if err := os.WriteFile(filepath.Join(rt.Dir, "registries.conf"), []byte(mirror), 0o600); err != nil {
		return err
	}
	if err := rt.Restart(); err != nil {
		return err
	}
	ctx, cancel := host.CallContext()
	defer cancel()
	if _, err := rt.images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}}); err != nil {
		return fmt.Errorf("pulling %s from the test's registry: %w", image, err)
	}
	return nil
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// registryImage returns the image as a registry stores it: its blobs by digest, and its manifest.
func registryImage(probe []byte) (blobs map[string][]byte, manifest []byte, err error) {
	layer, err := tarOf(file{"probe", probe})
	if err != nil {
		return nil, nil, err
	}
	config, err := imageConfig(layer)
	if err != nil {
		return nil, nil, err
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(layer); err != nil {
		return nil, nil, err
	}
	if err := z.Close(); err != nil {
		return nil, nil, err
	}
	blobs = map[string][]byte{}
	blob := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		blobs[digest] = data
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	}
	manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": blob("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{blob("application/vnd.oci.image.layer.v1.tar+gzip", zipped.Bytes())},
	})
	return blobs, manifest, err
}
