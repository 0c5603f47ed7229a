package bed

import (
	"fmt"
	"path/filepath"
)

// network is the configuration of the pods' network: the node's bridge, and addresses from
// its network, of which the bridge has the first.
func (n *Node) network() string {
	slot := n.cluster.slot
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "bed", "plugins": [{"type": "bridge", "bridge": %q, "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": %q, "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, slot.link(n.number), slot.subnet(n.number), n.IP)
}

// containerd is its configuration. A process without CAP_SYS_RESOURCE, as in a container
// without privileges, may not lower OOM scores: restrict_oom_score_adj. By default, containerd
// asks all shims for statistics once a second, which takes much of a small machine. No kubelet here needs them so often.
func (n *Node) containerd() string {
	_, node, _ := n.cluster.folders()
	return fmt.Sprintf(`version = 3
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  restrict_oom_score_adj = true
  stats_collect_period = "1h"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
[plugins.'io.containerd.cri.v1.images']
  snapshotter = %q
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = %q
`, filepath.Join(node, "cni"), filepath.Join(n.dir, "net.d"), snapshotter, Image)
}

// kubelet is its configuration, in a cgroup root of its own. Without CAP_SYS_RESOURCE, a process may not lower OOM scores.
func (n *Node) kubelet(healthPort int) string {
	return kubelet(n.IP, healthPort, n.cluster.path("ca.crt"), filepath.Join(n.dir, "volumeplugins")) + fmt.Sprintf(`
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
oomScoreAdj: 0
maxOpenFiles: 20000
`, n.CgroupRoot)
}

// kubelet is what the kubelets of all nodes have in their configuration. They evict no pods for a full disk, and remove no
// images, which nobody could pull again.
func kubelet(address string, healthPort int, authority, plugins string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
port: 10250
healthzBindAddress: 127.0.0.1
healthzPort: %d
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failSwapOn: false
volumePluginDir: %s
resolvConf: ""
makeIPTablesUtilChains: false
serializeImagePulls: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%%", imagefs.available: "0%%", nodefs.inodesFree: "0%%"}
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
configMapAndSecretChangeDetectionStrategy: Watch
`, address, healthPort, authority, plugins)
}
