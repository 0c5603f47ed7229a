package daemon

import (
	"fmt"

	"github.com/sluice-dev/sluice/pkg/config"
)

// takesWeights reports whether a kubelet of that version takes a pod's CPU weight for its request. From
// Kubernetes 1.37 on, its feature InPlacePodLevelResourcesVerticalScaling is on: the kubelet reads the
// weight of the pod's cgroup for the pod's status.resources, which scheduler and kubelet count.
func takesWeights(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "v%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 1 || major == 1 && minor >= 37
}

// fit adapts a configuration to a kubelet of that version. Pods' weights stay as they are, unless
// control.batch.onlineWeight is configured, which says that they may be raised.
func fit(c *config.Config, kubelet string) {
	c.KeepWeights = takesWeights(kubelet) && c.Control.Batch.OnlineWeight == 0
}

// setKubelet applies the configuration for a kubelet of that version, and saves the version for the next
// start. An error means that the version is not in force, or that it is and is not saved.
func (r *reloader) setKubelet(version string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version != r.fleet.Kubelet {
		log := r.log.WithField("version", version)
		if _, err := r.apply(r.base, "", r.fleet.Wanted, version); err != nil {
			return err
		}
		if takesWeights(version) {
			log = log.WithField("weights", "those of pods stay as they are unless control.batch.onlineWeight is configured: this kubelet takes them for requests")
		}
		log.Info("Kubelet")
	}
	if err := r.saveParts(); err != nil {
		return fmt.Errorf("a restart of sluice may forget the kubelet's version: %w", err)
	}
	return nil
}
