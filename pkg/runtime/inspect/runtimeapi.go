// Package inspect queries a container runtime about itself through its socket: containerd's
// version and introspection services, and the kubelet's interface (CRI) of containerd and
// CRI-O. What a runtime doesn't answer stays unknown.
package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	introspection "github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/containerd/containerd/api/services/version/v1"
)

// Timeout limits the time for all queries to a runtime together.
const Timeout = 2 * time.Second

// The runtime may have any of these services.
const (
	versionService       = "containerd's version service"
	introspectionService = "containerd's introspection service"
	criService           = "CRI"
)

// Facts is what a runtime reports about itself. An empty field is unknown.
type Facts struct {
	Name     string // "containerd", "cri-o"
	Version  string
	From     string   // the service that reported the name and the version
	NRI      NRI      // unknown for CRI-O
	Handlers []string // runtime handlers that RuntimeClasses may name; the default comes first
	Driver   string   // cgroup driver: "systemd", "cgroupfs"
	Problems []error  // queries that failed
}

// Answered reports whether the runtime answered any query.
func (f *Facts) Answered() bool { return f.Name != "" || f.NRI.State != Unknown || f.Driver != "" }

// State is the state of containerd's NRI plugin.
type State uint8

// containerd doesn't report whether a loaded NRI plugin is disabled (disable = true); that is
// only in its configuration.
const (
	Unknown State = iota
	Loaded
	Missing // NRI is in disabled_plugins, or the runtime is older than NRI
	Broken  // NRI failed to start
)

// NRI is what containerd reports about its NRI plugin.
type NRI struct {
	State   State
	Why     string            // the reason if State is Broken
	Exports map[string]string // what the plugin exports; empty in containerd 1.7 to 2.4
}

// nriPlugin is the type of containerd's NRI plugin.
const nriPlugin = "io.containerd.nri.v1"

// Ask queries the runtime at a socket. It takes at most Timeout, whatever program listens
// there.
func Ask(ctx context.Context, socket string) *Facts {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	f := &Facts{}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Problems = append(f.Problems, err)
		return f
	}
	defer conn.Close() //nolint:errcheck // all answers have arrived
	q := asker{conn, f}
	q.version(ctx)
	q.cri(ctx)
	if f.Name == "" || f.Name == containerdName {
		q.plugins(ctx)
	}
	return f
}

const containerdName = "containerd"

type asker struct {
	conn *grpc.ClientConn
	*Facts
}

// failed records a failed query. A service that the runtime doesn't have is no failure: the
// runtime answers Unimplemented.
func (q *asker) failed(service string, err error) bool {
	switch {
	case err == nil:
		return false
	case status.Code(err) != codes.Unimplemented:
		q.Problems = append(q.Problems, fmt.Errorf("%s: %w", service, err))
	}
	return true
}

func (q *asker) version(ctx context.Context) {
	answer, err := version.NewVersionClient(q.conn).Version(ctx, &emptypb.Empty{})
	if !q.failed(versionService, err) {
		q.Name, q.Version, q.From = containerdName, brief(answer.GetVersion()), versionService
	}
}

// plugins queries the state of containerd's NRI plugin.
func (q *asker) plugins(ctx context.Context) {
	client := introspection.NewIntrospectionClient(q.conn)
	answer, err := client.Plugins(ctx, &introspection.PluginsRequest{})
	if q.failed(introspectionService, err) {
		return
	}
	if len(answer.GetPlugins()) == 0 {
		q.Problems = append(q.Problems, errors.New(introspectionService+": it lists no plugins at all"))
		return
	}
	q.NRI.State = Missing
	for _, p := range answer.GetPlugins() {
		if p.GetType() != nriPlugin {
			continue
		}
		if q.NRI = (NRI{State: Loaded, Exports: p.GetExports()}); p.GetInitErr() != nil {
			q.NRI.State, q.NRI.Why = Broken, brief(p.GetInitErr().GetMessage())
		}
	}
}

// cri queries the runtime through the CRI.
func (q *asker) cri(ctx context.Context) {
	client := cri.NewRuntimeServiceClient(q.conn)
	answer, err := client.Version(ctx, &cri.VersionRequest{})
	if q.failed(criService+"'s Version", err) {
		return
	}
	if name := brief(answer.GetRuntimeName()); q.Name == "" && name != "" {
		q.Name, q.Version, q.From = name, brief(answer.GetRuntimeVersion()), criService
	}
	if s, err := client.Status(ctx, &cri.StatusRequest{Verbose: true}); !q.failed(criService+"'s Status", err) {
		q.handlers(s)
	}
	if c, err := client.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{}); !q.failed(criService+"'s RuntimeConfig", err) && c.GetLinux() != nil {
		q.Driver = strings.ToLower(c.GetLinux().GetCgroupDriver().String())
	}
}

// handlers lists the runtime handlers that RuntimeClasses may name: from the CRI if the runtime
// reports them (containerd 2.0, CRI-O 1.30), otherwise from containerd's configuration.
func (q *asker) handlers(s *cri.StatusResponse) {
	const most = 64
	for _, h := range s.GetRuntimeHandlers() {
		if name := brief(h.GetName()); name != "" && len(q.Handlers) < most { // "" is the default, once more
			q.Handlers = append(q.Handlers, name)
		}
	}
	config, err := parseConfig(s.GetInfo()["config"])
	if err != nil {
		q.Problems = append(q.Problems, fmt.Errorf("%s's Status: its configuration can't be read: %w", criService, err))
		return
	}
	if len(q.Handlers) == 0 {
		for name := range config.Containerd.Runtimes {
			if len(q.Handlers) < most {
				q.Handlers = append(q.Handlers, brief(name))
			}
		}
	}
	slices.SortFunc(q.Handlers, func(a, b string) int {
		first := brief(config.Containerd.Default)
		if (a == first) != (b == first) {
			if a == first {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
}

// config has the fields that matter here of the configuration that containerd's CRI reports.
type config struct {
	Containerd struct {
		Default  string              `json:"defaultRuntimeName"`
		Runtimes map[string]struct{} `json:"runtimes"`
	} `json:"containerd"`
}

// parseConfig reads the field "config" of a verbose status; the text may be "".
func parseConfig(text string) (c config, err error) {
	if text == "" {
		return c, nil
	}
	err = json.Unmarshal([]byte(text), &c)
	return c, err
}

// brief truncates a text from the runtime.
func brief(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.ToValidUTF8(text, "")
}
