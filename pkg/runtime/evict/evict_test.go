package evict

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake is a runtime's CRI service. Its lists ignore filters, as an older or newer service might.
type fake struct {
	cri.UnimplementedRuntimeServiceServer
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
	listFails  error
	stopFails  error
	hangs      bool // StopPodSandbox hangs

	mu    sync.Mutex
	calls []string
}

func (f *fake) call(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name)
}

func (f *fake) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fake) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: f.sandboxes}, f.listFails
}

func (f *fake) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: f.containers}, nil
}

func (f *fake) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	f.call("container " + r.GetContainerId() + " " + (time.Duration(r.GetTimeout()) * time.Second).String())
	return &cri.StopContainerResponse{}, f.stopFails
}

func (f *fake) StopPodSandbox(ctx context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	f.call("sandbox " + r.GetPodSandboxId())
	if f.hangs {
		<-ctx.Done() // the context may end here earlier than for the caller
		return nil, ctx.Err()
	}
	return &cri.StopPodSandboxResponse{}, f.stopFails
}

func sandbox(id, uid string, state cri.PodSandboxState) *cri.PodSandbox {
	return &cri.PodSandbox{Id: id, Metadata: &cri.PodSandboxMetadata{Uid: uid}, State: state}
}

// serve serves the fake on a socket with a short path, as unix(7) demands.
func serve(t *testing.T, f *fake) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "evict")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "cri.sock")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, f)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return socket
}

func TestCRI(t *testing.T) {
	t.Parallel()
	const ready, not = cri.PodSandboxState_SANDBOX_READY, cri.PodSandboxState_SANDBOX_NOTREADY
	mine := []*cri.PodSandbox{sandbox("old", "u1", not), sandbox("a", "u1", ready), sandbox("other", "u2", ready)}
	for name, test := range map[string]struct {
		fake    *fake
		grace   time.Duration
		timeout time.Duration
		calls   string
		err     string // the error; "" for none
	}{
		"the ready sandbox of the uid": {fake: &fake{sandboxes: mine}, calls: "sandbox a"},
		"none is there":                {fake: &fake{sandboxes: mine[2:]}},
		"none is ready":                {fake: &fake{sandboxes: mine[:1]}},
		"gone meanwhile":               {fake: &fake{sandboxes: mine, stopFails: status.Error(codes.NotFound, "no such sandbox")}, calls: "sandbox a"},
		"with grace": {fake: &fake{sandboxes: mine, containers: []*cri.Container{{Id: "c"}}}, grace: 1500 * time.Millisecond,
			calls: "container c 2s,sandbox a"},
		"containers gone meanwhile": {fake: &fake{sandboxes: mine, containers: []*cri.Container{{Id: "c"}}, stopFails: status.Error(codes.NotFound, "")}, grace: time.Second,
			calls: "container c 1s,sandbox a"},
		"containers stay": {fake: &fake{sandboxes: mine, containers: []*cri.Container{{Id: "c"}}, stopFails: errors.New("stuck in D")}, grace: time.Second,
			calls: "container c 1s", err: "stopping the containers of sandbox a"},
		"the list fails":  {fake: &fake{listFails: errors.New("database is locked")}, err: "listing its sandboxes"},
		"the stop fails":  {fake: &fake{sandboxes: mine, stopFails: errors.New("shim is dead")}, calls: "sandbox a", err: "shim is dead; it goes on running"},
		"no answer comes": {fake: &fake{sandboxes: mine, hangs: true}, timeout: 2 * time.Second, calls: "sandbox a", err: "there was no answer within 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := CRI{Socket: serve(t, test.fake), Timeout: test.timeout}
			err := c.Evict(t.Context(), Pod{UID: "u1", Ref: "batch/p", Grace: test.grace})
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "pod batch/p (u1)")):
				t.Errorf("got %v, want %q", err, test.err)
			}
			if got := strings.Join(test.fake.called(), ","); got != test.calls {
				t.Errorf("called %q, want %q", got, test.calls)
			}
		})
	}
}

func TestCRIIsAway(t *testing.T) {
	t.Parallel()
	c := CRI{Socket: filepath.Join(t.TempDir(), "none.sock"), Timeout: 5 * time.Second}
	err := c.Evict(t.Context(), Pod{UID: "u1", Ref: "batch/p"})
	if err == nil || !strings.Contains(err.Error(), "none.sock") || !strings.Contains(err.Error(), "is the runtime up") {
		t.Error(err)
	}
}

func TestFindSocket(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "evict")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	listen := func(name string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	find := func(runtime, want string) {
		t.Helper()
		got, err := FindSocket(root, runtime)
		if got != "" {
			got, _ = filepath.Rel(root, got)
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", runtime, got, err, want)
		}
	}
	find("containerd", "")
	listen("run/crio/crio.sock")
	find("", "run/crio/crio.sock")
	find("containerd", "")
	listen("run/containerd/containerd.sock")
	find("", "")
	find("containerd", "run/containerd/containerd.sock")
	find("cri-o", "run/crio/crio.sock")

	for given, want := range map[string]string{
		"/run/crio/crio.sock":                     "run/crio/crio.sock", // found below the host's root
		filepath.Join(root, "run/crio/crio.sock"): "run/crio/crio.sock", // found as given
		"/run/crio":      "",
		"/run/none.sock": "",
		"":               "", // there are two sockets
	} {
		got, err := Socket(root, given)
		if (err == nil) != (want != "") || want != "" && got != filepath.Join(root, want) || err != nil && !strings.Contains(err.Error(), "control.eviction.socket") {
			t.Errorf("%q: got %q, %v, want %q", given, got, err, want)
		}
	}
}
