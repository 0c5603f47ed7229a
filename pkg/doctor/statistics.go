package doctor

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// gentlePeriod is the time between two collections of statistics from which on they are no finding. The kubelet itself
// reads the statistics of containers that often (cAdvisor's housekeeping).
const gentlePeriod = 10 * time.Second

// statistics checks how often containerd asks the shims of all containers for statistics at the same time. Releases since
// 2.3 do so every second by default (NewStatsCollector of containerd's internal/cri/server/stats_collector.go), for kubelets
// with the feature gate PodAndContainerStatsFromCRI.
func (n *node) statistics() []Finding {
	const name, first = "statistics", "v2.3.0"
	for i := range runtimes {
		r := &runtimes[i]
		reported := n.Runtimes[r.socket]
		if r.process != "containerd" || reported == nil || reported.Name != r.process ||
			semver.Compare("v"+strings.TrimPrefix(reported.Version, "v"), first) < 0 {
			continue
		}
		period, err := n.statisticsPeriod(r.config)
		switch what := fmt.Sprintf("%s %s asks the shims of all containers at once every %s", reported.Name, reported.Version, period); {
		case err != nil:
			return []Finding{note(name, "how often containerd collects statistics of containers is not known: "+oneLine(err), "correct stats_collect_period, or the file")}
		case period >= gentlePeriod:
			return []Finding{ok(name, what)}
		case n.kubelet.config.FeatureGates["PodAndContainerStatsFromCRI"]:
			return []Finding{note(name, what+", which delays services on small nodes; the kubelet's feature gate PodAndContainerStatsFromCRI needs it", "if services must not be delayed, switch that feature gate off and make stats_collect_period longer")}
		default:
			return []Finding{note(name, what+", which delays services on small nodes; only a kubelet with the feature gate PodAndContainerStatsFromCRI needs it", `set stats_collect_period = "1m" in [plugins.'io.containerd.cri.v1.runtime'] of its configuration, and restart containerd`)}
		}
	}
	return nil
}

// statisticsPeriod returns the time between two collections of statistics by containerd's configuration.
func (n *node) statisticsPeriod(config string) (time.Duration, error) {
	text := "1s"
	files, err := n.runtimeFiles(config, "")
	for i := range files {
		text = cmp.Or(files[i].Plugins.CRI.StatisticsPeriod, text)
	}
	if err != nil {
		return 0, fmt.Errorf("/%s: %w", files[len(files)-1].name, err)
	}
	return time.ParseDuration(text) // containerd does not start with another text
}
