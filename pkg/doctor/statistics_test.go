package doctor

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
)

func TestStatistics(t *testing.T) {
	t.Parallel()
	const (
		socket = "run/containerd/containerd.sock"
		config = "etc/containerd/config.toml"
		minute = "[plugins.'io.containerd.cri.v1.runtime']\nstats_collect_period = '1m'\n"
		gate   = "featureGates: {PodAndContainerStatsFromCRI: true}\n"
	)
	for name, test := range map[string]struct {
		runtime, version string
		files            texts
		level            Level
		want             string // part of the finding; "" for none
	}{
		"an older containerd": {"containerd", "v2.2.5", nil, OK, ""},
		"CRI-O":               {"cri-o", "2.4.0", nil, OK, ""},
		"not configured":      {"containerd", "v2.3.0", nil, Note, "at once every 1s, which delays services on small nodes; only a kubelet with"},
		"without a v":         {"containerd", "2.4.2", nil, Note, "every 1s"},
		"configured":          {"containerd", "v2.4.2", texts{config: minute}, OK, "every 1m0s"},
		"imported":            {"containerd", "v2.4.2", texts{config: "imports = ['/etc/containerd/conf.d/*.toml']", "etc/containerd/conf.d/x.toml": minute}, OK, "every 1m0s"},
		"for the kubelet":     {"containerd", "v2.4.2", texts{"var/lib/kubelet/config.yaml": gate}, Note, "the kubelet's feature gate PodAndContainerStatsFromCRI needs it"},
		"not TOML":            {"containerd", "v2.4.2", texts{config: "="}, Note, "is not known: /" + config},
		"not a duration":      {"containerd", "v2.4.2", texts{config: "[plugins.'io.containerd.cri.v1.runtime']\nstats_collect_period = 'often'\n"}, Note, "is not known: time: invalid duration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(host(t, "2 cores", test.files), nil)
			f.Runtimes = map[string]*inspect.Facts{socket: {Name: test.runtime, Version: test.version}}
			n := &node{Facts: f}
			n.kubelet = n.readKubelet()
			got := n.statistics()
			if test.want == "" {
				if got != nil {
					t.Errorf("%+v", got)
				}
				return
			}
			expectOne(t, name, got, test.level, test.want)
		})
	}
}
