package bed

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is the image that each node has, for pods of tests: busybox, with a shell and what
// else /bin has by the names of busybox's applets. It sleeps unless told otherwise.
const Image = "localhost/sluice/bed:1"

const busybox = "/bin/busybox"

// ImportPrograms gives the node an image of that name with busybox, as Image has it, and
// the static programs in /bin.
func (n *Node) ImportPrograms(t testing.TB, image string, programs ...string) {
	t.Helper()
	if err := n.importPrograms(image, programs...); err != nil {
		t.Fatal(err)
	}
}

// Import gives the node the images of an archive, as `make image` writes it, and waits
// until the kubelet can use the one with that name.
func (n *Node) Import(t testing.TB, archive, image string) {
	t.Helper()
	path, err := filepath.Abs(archive)
	if err == nil {
		err = n.importArchive(path, image)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (n *Node) importPrograms(image string, programs ...string) error {
	archive := filepath.Join(n.dir, "image.tar")
	if err := writeImage(archive, image, programs...); err != nil {
		return err
	}
	return n.importArchive(archive, image)
}

// writeImage writes an archive with an image of that name, as ImportPrograms describes it.
func writeImage(archive, image string, programs ...string) error {
	layer, err := files(programs)
	if err != nil {
		return err
	}
	built, err := build(layer)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, built)
}

func (n *Node) importArchive(archive, image string) error {
	ctr := n.Command("ctr", "--namespace", "k8s.io", "images", "import", "--local", "--snapshotter", snapshotter, archive)
	if out, err := ctr.CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s into node %s: %w: %s", archive, n.Name, err, out)
	}
	conn, err := grpc.NewClient("unix://"+n.Path("/run/containerd/containerd.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	// CRI learns of the image through an event; the kubelet would pull it before that.
	return n.Containerd.process.Await("CRI to know the image "+image, func() error {
		ctx, cancel := timeout(time.Minute)
		defer cancel()
		status, err := cri.NewImageServiceClient(conn).ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		if err == nil && status.GetImage() == nil {
			err = ErrNotYet
		}
		return err
	})
}

// build is an image with that layer.
func build(layer []byte) (v1.Image, error) {
	opened, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, opened)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config = v1.Config{Entrypoint: []string{"/bin/sleep", "infinity"}, Env: []string{"PATH=/bin"}}
	return mutate.ConfigFile(image, file)
}

// files is a layer with busybox, links to it and the programs.
func files(programs []string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var errs []error
	for _, dir := range []string{"bin", "dev", "etc", "proc", "run", "sys", "tmp", "var"} {
		errs = append(errs, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}))
	}
	for _, program := range append([]string{busybox}, programs...) {
		text, err := os.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("%w: run make packages", err)
		}
		errs = append(errs, w.WriteHeader(&tar.Header{Name: "bin/" + filepath.Base(program), Mode: 0o755, Size: int64(len(text))}))
		_, err = w.Write(text)
		errs = append(errs, err)
	}
	for _, applet := range []string{"sh", "sleep", "cat", "grep", "yes", "dd", "nproc", "ls", "echo", "env", "wget", "nc", "ip", "hostname", "id", "ps", "timeout", "head", "tail", "seq", "true", "false", "date", "kill"} {
		errs = append(errs, w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}))
	}
	err := errors.Join(append(errs, w.Close())...)
	return out.Bytes(), err
}
