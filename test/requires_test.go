package test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// requirements lists the modules that the product's go.mod may require directly, each with its
// reason. Modules for tests alone belong in the module test/external.
func requirements() map[string]string {
	return map[string]string{
		"charm.land/bubbletea/v2":                   "sluice top: the terminal's screen",
		"github.com/charmbracelet/x/term":           "sluice top: whether the output is a terminal, and its size",
		"github.com/containerd/containerd/api":      "which runtime serves the socket, and whether its NRI is on",
		"github.com/containerd/nri":                 "the plugin's protocol",
		"github.com/coreos/go-systemd/v22":          "the notification of systemd that the plugin is ready",
		"github.com/fsnotify/fsnotify":              "reloading of sluice.yaml",
		"github.com/go-logr/logr":                   "kubectl sluice: keeps client-go's log off the terminal",
		"github.com/intel/goresctrl":                "RDT's schemata and monitoring groups",
		"github.com/moby/sys/mountinfo":             "where cgroups and resctrl are mounted",
		"github.com/opencontainers/runtime-spec":    "the configuration that runc wrote of a container",
		"github.com/pelletier/go-toml/v2":           "sluice doctor: containerd's and CRI-O's configuration",
		"github.com/prometheus/client_golang":       "the metrics endpoint",
		"github.com/vishvananda/netlink":            "the qdiscs that limit what pods send",
		"github.com/sirupsen/logrus":                "the log, which the NRI module writes to as well",
		"github.com/spf13/cobra":                    "the commands",
		"github.com/spf13/pflag":                    "the commands' flags in shell completion",
		"golang.org/x/mod":                          "versions of the runtime and the kernel in order",
		"golang.org/x/net":                          "a limit of the web page's connections",
		"golang.org/x/sys":                          "system calls",
		"gonum.org/v1/gonum":                        "the Fourier transform that finds the period of a usage",
		"google.golang.org/grpc":                    "CRI",
		"google.golang.org/protobuf":                "answers of containerd's introspection",
		"gopkg.in/natefinch/lumberjack.v2":          "rotation of the log file",
		"gopkg.in/yaml.v3":                          "sluice.yaml, and annotations that are mappings",
		"golang.org/x/sync":                         "sluice-kube: its goroutines end together",
		"k8s.io/api":                                "sluice-kube: types of nodes, pods and events",
		"k8s.io/apimachinery":                       "sluice-kube: their encoding, and errors of the API server",
		"k8s.io/client-go":                          "sluice-kube: watches and patches; kubectl sluice: lists, and commands in pods",
		"k8s.io/component-helpers":                  "sluice-kube: what a pod requests, as the scheduler counts it",
		"k8s.io/kubelet":                            "sluice-kube: what the kubelet and a DRA driver say to each other",
		"k8s.io/cri-api":                            "CRI",
		"k8s.io/streaming":                          "kubectl sluice: whether a WebSocket was refused; a dependency of client-go in any case",
		"github.com/containerd/ttrpc":               "tests of the NRI connection; a dependency of nri in any case",
		"github.com/prometheus/client_model":        "tests that read metrics; a dependency of client_golang in any case",
		"google.golang.org/genproto/googleapis/rpc": "tests of errors of CRI; a dependency of grpc in any case",
		"pgregory.net/rapid":                        "property tests in most packages; it has no dependencies",
	}
}

func TestRequirements(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	allowed := requirements()
	for _, r := range file.Require {
		if r.Indirect {
			continue
		}
		if _, ok := allowed[r.Mod.Path]; !ok {
			t.Errorf("go.mod requires %s: put the tests that need it into test/external, or give the product's reason in requirements()", r.Mod.Path)
		}
		delete(allowed, r.Mod.Path)
	}
	if unused := slices.Sorted(maps.Keys(allowed)); len(unused) > 0 {
		t.Errorf("go.mod no longer requires %q: remove these lines from requirements()", unused)
	}
}

// The other modules are tidy with respect to what the product's packages import now.
func TestModulesAreTidy(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"test/external", "test/helm", "test/kube", "configs/package"} {
		cmd := exec.Command("go", "list", "-mod=readonly", "-deps", "-test", "./...")
		cmd.Dir = filepath.Join("..", dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("run go mod tidy in %s: %v\n%.2000s", dir, err, out)
		}
	}
}

// The plugin needs neither the API server's client nor the memory that it costs.
func TestThePluginHasNoClientOfTheAPIServer(t *testing.T) {
	t.Parallel()
	for program, wants := range map[string]bool{"sluice": false, "sluice-kube": true, "kubectl-sluice": true} {
		out, err := exec.Command("go", "list", "-deps", "../plugins/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range []string{"k8s.io/client-go/", "k8s.io/api/", "k8s.io/apimachinery/"} {
			if has := strings.Contains(string(out), "\n"+module); has != wants {
				t.Errorf("%s imports packages of %s: %t, want %t", program, module, has, wants)
			}
		}
	}
}
