// Package inspect asks a container runtime about itself through its own socket:
// containerd's version and introspection services, and the kubelet's interface (CRI) of
// containerd and CRI-O. What a runtime doesn't answer stays unknown.
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

// Timeout bounds all questions to a runtime together.
const Timeout = 2 * time.Second

// The services that may answer.
const (
	versionService       = "containerd's version service"
	introspectionService = "containerd's introspection service"
	criService           = "CRI"
)

// Facts are what a runtime tells about itself. An empty field isn't known.
type Facts struct {
	Name     string // "containerd", "cri-o"
	Version  string
	From     string   // the service that told name and version
	NRI      NRI      // CRI-O tells nothing of it
	Handlers []string // that pods' runtime classes may name; the default comes first
	Driver   string   // of cgroups: "systemd", "cgroupfs"
	Problems []error  // questions that had no answer
}

// Answered reports whether the runtime answered anything at all.
func (f *Facts) Answered() bool { return f.Name != "" || f.NRI.State != Unknown || f.Driver != "" }

// State is what containerd tells of its NRI plugin.
type State uint8

// The states of the NRI plugin. containerd doesn't tell whether a loaded one is switched
// off (disable = true): its configuration does.
const (
	Unknown State = iota
	Loaded
	Missing // it is in disabled_plugins, or the runtime is older than NRI
	Broken  // it failed to start
)

// NRI is what containerd tells of its NRI plugin.
type NRI struct {
	State State
	Why   string            // where it is broken
	Told  map[string]string // what the plugin exports; empty in containerd 1.7 to 2.4
}

// nriPlugin is the type of containerd's NRI plugin.
const nriPlugin = "io.containerd.nri.v1"

// Ask asks the runtime at a socket. It takes no longer than Timeout, whatever listens there.
func Ask(ctx context.Context, socket string) *Facts {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	f := &Facts{}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Problems = append(f.Problems, err)
		return f
	}
	defer conn.Close() //nolint:errcheck // all answers are there
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

// failed notes a question that had no answer. A service that the runtime doesn't have is
// no problem: it says so at once.
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

// plugins asks how containerd's NRI plugin fares.
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
		if q.NRI = (NRI{State: Loaded, Told: p.GetExports()}); p.GetInitErr() != nil {
			q.NRI.State, q.NRI.Why = Broken, brief(p.GetInitErr().GetMessage())
		}
	}
}

// cri asks as the kubelet does.
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

// handlers lists what pods' runtime classes may name: CRI's own list where the runtime has
// it (containerd 2.0, CRI-O 1.30), else that of containerd's configuration.
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

// config is what matters here of the configuration that containerd's CRI tells.
type config struct {
	Containerd struct {
		Default  string              `json:"defaultRuntimeName"`
		Runtimes map[string]struct{} `json:"runtimes"`
	} `json:"containerd"`
}

// parseConfig reads the "config" of a verbose status; "" is none.
func parseConfig(text string) (c config, err error) {
	if text == "" {
		return c, nil
	}
	err = json.Unmarshal([]byte(text), &c)
	return c, err
}

// brief bounds a text that the runtime chose.
func brief(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.ToValidUTF8(text, "")
}
