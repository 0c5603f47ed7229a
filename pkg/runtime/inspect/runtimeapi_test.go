package inspect

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/api/services/version/v1"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fake is a runtime with the services that a test chooses.
type fake struct {
	cri.UnimplementedRuntimeServiceServer
	version.UnimplementedVersionServer
	introspection.UnimplementedIntrospectionServer
	name    string
	status  *cri.StatusResponse
	plugins []*introspection.Plugin
	hangs   bool // Status hangs
	fails   error
}

type (
	versions struct{ *fake }
	kubelets struct{ *fake }
)

func (versions) Version(context.Context, *emptypb.Empty) (*version.VersionResponse, error) {
	return &version.VersionResponse{Version: "v2.4.2"}, nil
}

func (f kubelets) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: f.name, RuntimeVersion: "1.34.0"}, nil
}

func (f *fake) Status(ctx context.Context, _ *cri.StatusRequest) (*cri.StatusResponse, error) {
	if f.hangs {
		<-ctx.Done()
	}
	return f.status, f.fails
}

func (f *fake) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_SYSTEMD}}, f.fails
}

func (f *fake) Plugins(context.Context, *introspection.PluginsRequest) (*introspection.PluginsResponse, error) {
	return &introspection.PluginsResponse{Plugins: f.plugins}, f.fails
}

// listen listens on a socket in a folder of its own.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, socket
}

// serve serves the named services of a fake.
func serve(t *testing.T, f *fake, services string) string {
	t.Helper()
	l, socket := listen(t)
	s := grpc.NewServer()
	if strings.Contains(services, "version") {
		version.RegisterVersionServer(s, versions{f})
	}
	if strings.Contains(services, "introspection") {
		introspection.RegisterIntrospectionServer(s, f)
	}
	if strings.Contains(services, "cri") {
		cri.RegisterRuntimeServiceServer(s, kubelets{f})
	}
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return socket
}

func TestAsk(t *testing.T) {
	t.Parallel()
	nri := &introspection.Plugin{Type: "io.containerd.nri.v1", ID: "nri"}
	broken := &introspection.Plugin{Type: "io.containerd.nri.v1", ID: "nri", InitErr: &rpc.Status{Message: "no socket"}}
	other := &introspection.Plugin{Type: "io.containerd.grpc.v1", ID: "cri"}
	verbose := func(config string) *cri.StatusResponse {
		return &cri.StatusResponse{Info: map[string]string{"config": config}, RuntimeHandlers: []*cri.RuntimeHandler{{Name: ""}, {Name: "kata"}, {Name: "runc"}}}
	}
	for name, c := range map[string]struct {
		fake     fake
		services string
		want     string
	}{
		"containerd 2.x": {fake{name: "containerd", status: verbose(`{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{},"kata":{}}}}`), plugins: []*introspection.Plugin{other, nri}},
			"version introspection cri", "containerd v2.4.2 by containerd's version service; NRI loaded; runc,kata; systemd"},
		"without the list of handlers": {fake{name: "containerd", status: &cri.StatusResponse{Info: map[string]string{"config": `{"containerd":{"defaultRuntimeName":"z","runtimes":{"a":{},"z":{}}}}`}}, plugins: []*introspection.Plugin{nri}},
			"version introspection cri", "containerd v2.4.2 by containerd's version service; NRI loaded; z,a; systemd"},
		"NRI disabled as a plugin": {fake{name: "containerd", status: verbose(""), plugins: []*introspection.Plugin{other}},
			"version introspection cri", "containerd v2.4.2 by containerd's version service; NRI missing; kata,runc; systemd"},
		"NRI failed": {fake{name: "containerd", status: verbose(""), plugins: []*introspection.Plugin{broken}},
			"version introspection cri", "containerd v2.4.2 by containerd's version service; NRI broken: no socket; kata,runc; systemd"},
		"no plugins listed": {fake{name: "containerd", status: verbose("")},
			"version introspection cri", "containerd v2.4.2 by containerd's version service; NRI unknown; kata,runc; systemd; containerd's introspection service: it lists no plugins at all"},
		"CRI switched off":             {fake{plugins: []*introspection.Plugin{nri}}, "version introspection", "containerd v2.4.2 by containerd's version service; NRI loaded; ; "},
		"CRI-O":                        {fake{name: "cri-o", status: verbose("")}, "cri", "cri-o 1.34.0 by CRI; NRI unknown; kata,runc; systemd"},
		"a configuration that is none": {fake{name: "cri-o", status: verbose("{")}, "cri", "cri-o 1.34.0 by CRI; NRI unknown; kata,runc; systemd; CRI's Status: its configuration can't be read: unexpected end of JSON input"},
		"no service at all":            {fake{}, "", " by ; NRI unknown; ; "},
		"failures": {fake{name: "containerd", fails: errors.New("no")}, "version introspection cri",
			"containerd v2.4.2 by containerd's version service; NRI unknown; ; ; CRI's Status: rpc error: code = Unknown desc = no; CRI's RuntimeConfig: rpc error: code = Unknown desc = no; containerd's introspection service: rpc error: code = Unknown desc = no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := Ask(t.Context(), serve(t, &c.fake, c.services))
			if got := text(f); got != c.want {
				t.Errorf("%s, want\n%s", got, c.want)
			}
			if f.Answered() != (f.Name != "") {
				t.Errorf("it answered: %v", f.Answered())
			}
		})
	}
}

func text(f *Facts) string {
	s := f.Name + " " + f.Version + " by " + f.From + "; NRI " + [...]string{"unknown", "loaded", "missing", "broken"}[f.NRI.State]
	if f.NRI.Why != "" {
		s += ": " + f.NRI.Why
	}
	s = strings.Replace(s, "  by", " by", 1) + "; " + strings.Join(f.Handlers, ",") + "; " + f.Driver
	for _, err := range f.Problems {
		s += "; " + err.Error()
	}
	return s
}

// A socket without a runtime, or with one that hangs, takes no longer than the timeout, and
// answers received before count.
func TestAskInVain(t *testing.T) {
	t.Parallel()
	const patience = 30 * time.Second // only bounds the time if Ask hangs
	garbage, socket := listen(t)
	go func() {
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\nhello\x00\xff"))
			conn.Close()
		}
	}()
	silent, mute := listen(t)
	go func() {
		for {
			if _, err := silent.Accept(); err != nil {
				return
			}
		}
	}()
	for name, c := range map[string]struct{ socket, want string }{
		"garbage":     {socket, ""},
		"silence":     {mute, ""},
		"nobody":      {filepath.Join(t.TempDir(), "none"), ""},
		"hangs later": {serve(t, &fake{name: "cri-o", hangs: true}, "cri"), "cri-o"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			f := Ask(t.Context(), c.socket)
			if took := time.Since(begun); took > patience {
				t.Errorf("it took %v", took)
			}
			if f.Name != c.want || len(f.Problems) == 0 {
				t.Errorf("%+v", f)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("")
	f.Add(`{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}}}`)
	f.Add(`{"containerd":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := parseConfig(text); err == nil && len(c.Containerd.Runtimes) > len(text) {
			t.Errorf("%d runtimes", len(c.Containerd.Runtimes))
		}
	})
}
