package scenarios

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/containerd/nri/pkg/api"

	"github.com/sluice-dev/sluice/test/protocol"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

// scenario holds the runtime and the plugin of one file.
type scenario struct {
	*protocol.Runtime
	host, config string // folder of the machine, and configuration file
	online       cpuset.Set
	plugin       *protocol.Plugin // nil while it does not run
	pods         map[string]*api.PodSandbox
	containers   map[string]*protocol.Container // by label
	shown        map[string]string              // last printed line of each container
}

func newScenario(t *testing.T) *scenario {
	return &scenario{
		Runtime: protocol.New(t),
		pods:    map[string]*api.PodSandbox{}, containers: map[string]*protocol.Container{}, shown: map[string]string{},
	}
}

// step carries out one directive and returns what it changed:
//
//	machine                   the input is a machine of topology/synth; the first step
//	config                    the input is sluice.yaml, before sluice starts
//	file PATH                 the input is a file below the host's root
//	sluice start|stop|kill|restart
//	pod NAME [qos=guaranteed|burstable|besteffort] [ns=] [runtime=] [label:KEY=VALUE] [KEY=VALUE]
//	                          a pod with labels and annotations
//	create POD/NAME [cpu=] [limit=] [memory=] [device=226:0]
//	start, stop, remove, exit POD/NAME
//	run POD/NAME [cpu=] ...   create and start
//	fail POD/NAME             the runtime fails after the create: only a remove, with the id alone
//	update POD/NAME [cpu=] [limit=] [memory=]
//	remove-pod NAME
//	status                    mode, pools
//	explain POD/NAME          what sluice says of the container
func (s *scenario) step(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	if err := s.perform(t, d, &out); err != nil {
		fmt.Fprintf(&out, "error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n       "))
	}
	s.changes(&out)
	if err := s.check(); err != nil {
		t.Errorf("%s: after %s: %v\nwhich said:\n%sand sluice's log:\n%s", d.Pos, d.FullCmd(), err, out.String(), s.plugin.Log)
	}
	return out.String()
}

func (s *scenario) perform(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	var about string // object of the directive
	if len(d.CmdArgs) > 0 {
		about = d.CmdArgs[0].Key
	}
	c := s.containers[about]
	switch d.Cmd {
	case "start", "stop", "remove", "exit", "fail", "update", "explain":
		if c == nil {
			t.Fatalf("%s: there is no container %q", d.Pos, about)
		}
	}
	switch d.Cmd {
	case "machine":
		s.host = s.Host(t, d.Input)
		m, err := synth.Machine(d.Input)
		if err != nil {
			return err
		}
		s.online = m.Online
	case "config":
		s.config = filepath.Join(s.Dir, "sluice.yaml")
		return os.WriteFile(s.config, []byte(d.Input), 0o600)
	case "file":
		path := filepath.Join(s.host, about)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(d.Input+"\n"), 0o644)
	case "sluice":
		s.sluice(t, about)
	case "pod":
		pod, err := s.RunPod(podOf(t, d))
		s.pods[about] = pod
		return err
	case "create", "run":
		return s.create(t, d, about)
	case "start":
		return s.Start(c)
	case "stop":
		return s.Stop(c)
	case "exit":
		s.Exit(c)
	case "remove":
		return s.Remove(c)
	case "fail":
		return s.FailedCreate(c)
	case "update":
		return s.Update(c, requestsOf(t, d))
	case "remove-pod":
		return s.RemovePod(s.pods[about])
	case "status":
		return s.status(out)
	case "explain":
		return s.explain(c, out)
	default:
		t.Fatalf("%s: unknown directive %q", d.Pos, d.Cmd)
	}
	return nil
}

func (s *scenario) sluice(t *testing.T, what string) {
	if what != "start" {
		if what == "kill" || what == "restart" {
			s.plugin.Kill()
		} else {
			s.plugin.Stop()
		}
		s.plugin = nil
	}
	if what == "start" || what == "restart" {
		s.plugin = s.Sluice(t, binary, s.host, s.config)
	}
}

func (s *scenario) create(t *testing.T, d *datadriven.TestData, about string) error {
	podName, name, _ := strings.Cut(about, "/")
	pod := s.pods[podName]
	if pod == nil {
		t.Fatalf("%s: there is no pod %q", d.Pos, podName)
	}
	c, err := s.Create(pod, name, requestsOf(t, d))
	if err != nil {
		return err
	}
	s.containers[c.Label] = c
	if d.Cmd == "run" {
		return s.Start(c)
	}
	return nil
}

func podOf(t *testing.T, d *datadriven.TestData) protocol.Pod {
	p := protocol.Pod{Name: d.CmdArgs[0].Key, Labels: map[string]string{}, Annotations: map[string]string{}}
	for _, arg := range d.CmdArgs[1:] {
		value := arg.SingleVal(t)
		label, isLabel := strings.CutPrefix(arg.Key, "label:")
		switch {
		case isLabel:
			p.Labels[label] = value
		case arg.Key == "qos":
			p.QoS = value
		case arg.Key == "ns":
			p.Namespace = value
		case arg.Key == "runtime":
			p.RuntimeHandler = value
		default:
			p.Annotations[arg.Key] = value
		}
	}
	return p
}

func requestsOf(t *testing.T, d *datadriven.TestData) protocol.Requests {
	var q protocol.Requests
	for _, arg := range d.CmdArgs[1:] {
		value := arg.SingleVal(t)
		var err error
		switch arg.Key {
		case "cpu":
			q.CPU, err = milli(value)
		case "limit":
			q.Limit, err = milli(value)
		case "memory":
			q.Memory, err = gibibytes(value)
		case "device":
			var device api.LinuxDevice
			device.Type = "c"
			_, err = fmt.Sscanf(value, "%d:%d", &device.Major, &device.Minor)
			q.Devices = append(q.Devices, &device)
		default:
			t.Fatalf("%s: unknown argument %q", d.Pos, arg.Key)
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", d.Pos, arg.Key, err)
		}
	}
	return q
}

// milli parses a Kubernetes amount of CPU such as "500m" or "4".
func milli(text string) (int64, error) {
	if m, ok := strings.CutSuffix(text, "m"); ok {
		return strconv.ParseInt(m, 10, 64)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return 1000 * n, err
}

func gibibytes(text string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, "Gi"), 10, 64)
	return n << 30, err
}
