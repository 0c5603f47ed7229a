package bed

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-dev/sluice/test/vm/boot"
)

// kit has the kernel and systemd of guests.
func kit() (boot.Kit, error) {
	root, err := repository()
	return boot.Kit{Repository: root}, err
}

// modules are those of the guest's kernel.
func modules() []string { return append(boot.Disk(), boot.Network()...) }

// root writes the guest's first root, and returns its path.
func (g *Guest) root(kit boot.Kit, has Equipment) (string, error) {
	if err := g.cluster.missing(); err != nil {
		return "", err
	}
	start, err := kit.Build("init", "./test/vm/init", "build")
	if err != nil {
		return "", err
	}
	files, err := kit.Systemd()
	if err != nil {
		return "", err
	}
	config, err := g.cluster.user("system:node:"+g.Name, "system:nodes")
	if err != nil {
		return "", err
	}
	config.Host = "https://" + g.cluster.serviceIP().String()
	kubeconfig, err := g.cluster.kubeconfig("kubelet-"+g.Name, config)
	if err != nil {
		return "", err
	}
	image := g.cluster.path(g.Name + "-image.tar")
	if err := writeImage(image, Image); err != nil {
		return "", err
	}
	kubernetes, node, containerd := g.cluster.folders()
	maps.Copy(files, kit.Modules(modules()))
	maps.Copy(files, map[string]string{
		"init":                        start,
		"bin/busybox":                 busybox,
		"bin/kubelet":                 filepath.Join(kubernetes, "kubelet"),
		"bin/runc":                    filepath.Join(node, "runc"),
		"bin/containerd":              filepath.Join(containerd, "containerd"),
		"bin/containerd-shim-runc-v2": filepath.Join(containerd, "containerd-shim-runc-v2"),
		"bin/ctr":                     filepath.Join(containerd, "ctr"),
		"etc/kubernetes/ca.crt":       g.cluster.path("ca.crt"),
		"etc/kubernetes/kubeconfig":   kubeconfig,
		"images/0.tar":                image,
	})
	for i, archive := range has.Images {
		files[fmt.Sprintf("images/%d.tar", i+1)] = archive
	}
	for _, plugin := range []string{"bridge", "host-local", "loopback"} {
		files["opt/cni/bin/"+plugin] = filepath.Join(node, "cni", plugin)
	}
	maps.Copy(files, has.Files)
	texts := g.texts()
	maps.Copy(texts, has.Texts)
	root := g.cluster.path(g.Name + ".cpio")
	return root, boot.WriteRoot(root, files, texts)
}

// texts are the files of a node's configuration. Without DefaultDependencies=no, its units would need those that a
// distribution has for its start. The emulated CPUs take turns on one of the host's: Go programs that spin on all of them
// in search of work would take most of its time.
func (g *Guest) texts() map[string]string {
	slot := g.cluster.slot
	place := strings.NewReplacer("NAME", g.Name, "ADDRESS", g.IP, "GATEWAY", slot.address(g.number, 1).String(),
		"SUBNET", slot.subnet(g.number), "FIRST", slot.address(g.number, 10).String(), "PORT", fmt.Sprint(shellPort), "SANDBOX", Image)
	texts := map[string]string{
		"etc/hostname":     "NAME\n",
		"etc/kubelet.yaml": kubelet(g.IP, 10248, "/etc/kubernetes/ca.crt", "/var/lib/kubelet/volumeplugins") + "cgroupDriver: systemd\n",
		// The pods' network is the node's own: its bridge has the machine's network interface as a port, and the test's
		// machine is everybody's gateway.
		"etc/cni/net.d/10-bed.conflist": `{"cniVersion": "1.0.0", "name": "bed", "plugins": [{"type": "bridge", "bridge": "pods",
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "SUBNET", "rangeStart": "FIRST", "gateway": "GATEWAY"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`,
		// An emulated plugin may answer in seconds instead of milliseconds.
		"etc/containerd.toml": `version = 3
[plugins.'io.containerd.nri.v1.nri']
  plugin_registration_timeout = "1m"
  plugin_request_timeout = "1m"
[plugins.'io.containerd.cri.v1.runtime']
  stats_collect_period = "1h"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    SystemdCgroup = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "SANDBOX"
`,
		// The kernel's first root is no file system that the kubelet can measure.
		"etc/prepare": `set -e
/bin/busybox --install -s /bin 2>/dev/null || true
mkdir -p /var/log /var/lib
ln -s /run /var/run
mount -t tmpfs tmpfs /var/lib
ip link add pods type bridge
ip link set eth0 master pods
ip link set eth0 up
ip link set pods up
ip address add ADDRESS/24 dev pods
ip route add default via GATEWAY
`,
		"etc/shell": `/bin/sh -ec "$(cat)" </dev/null 2>&1
echo "exit $?"
`,
		"etc/systemd/system/node.target": `[Unit]
DefaultDependencies=no
Wants=shell.socket
After=shell.socket
`,
		"etc/systemd/system/prepare.service": `[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh /etc/prepare
StandardOutput=file:/dev/console
StandardError=file:/dev/console
`,
		"etc/systemd/system/shell.socket": `[Unit]
DefaultDependencies=no
Requires=prepare.service
After=prepare.service
[Socket]
ListenStream=PORT
Accept=yes
`,
		"etc/systemd/system/shell@.service": `[Unit]
DefaultDependencies=no
[Service]
Environment=PATH=/bin HOME=/
ExecStart=-/bin/sh /etc/shell
StandardInput=socket
StandardOutput=socket
`,
		"etc/systemd/system/containerd.service": `[Unit]
DefaultDependencies=no
[Service]
Type=notify
Environment=PATH=/bin GOMAXPROCS=4
ExecStart=/bin/containerd --config /etc/containerd.toml
Delegate=yes
KillMode=process
OOMScoreAdjust=-999
LimitNOFILE=65536
TasksMax=infinity
TimeoutStartSec=300
StandardOutput=append:/var/log/containerd.log
StandardError=append:/var/log/containerd.log
`,
		"etc/systemd/system/kubelet.service": `[Unit]
DefaultDependencies=no
[Service]
Environment=PATH=/bin GOMAXPROCS=4
ExecStart=/bin/kubelet --config /etc/kubelet.yaml --kubeconfig /etc/kubernetes/kubeconfig --cert-dir /var/lib/kubelet/pki --hostname-override NAME --node-ip ADDRESS --v=2
Restart=always
StandardOutput=append:/var/log/kubelet.log
StandardError=append:/var/log/kubelet.log
`,
	}
	for _, target := range []string{"sysinit", "basic", "shutdown"} {
		texts["etc/systemd/system/"+target+".target"] = "[Unit]\nDefaultDependencies=no\n"
	}
	for name, text := range texts {
		texts[name] = place.Replace(text)
	}
	return texts
}

// writeEmpty writes a file of that many bytes, all zero.
func writeEmpty(path string, size int64) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, size)
}
