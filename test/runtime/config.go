package runtime

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// config is the configuration of both versions of containerd. Negative OOM scores need
// CAP_SYS_RESOURCE, so they are restricted. By default, version 2.3 and later ask all shims for statistics at the same
// time, once a second. No test reads these statistics, and services wait for a CPU meanwhile.
const config = `
root = "{{.Dir}}/root"
state = "{{.Dir}}/state"
disabled_plugins = ["io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{{.Socket}}"
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{{.NRISocket}}"
  plugin_path = "{{.PluginDir}}"
  plugin_config_path = "{{.PluginConfigDir}}"
  plugin_registration_timeout = "{{.Registration}}"
  plugin_request_timeout = "{{.Request}}"
{{- if ne .Version "1.7"}}
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "{{.Snapshotter}}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{{.Image}}"
{{- end}}
[plugins.'{{.CRI}}']
  restrict_oom_score_adj = true
{{- if eq .Version "1.7"}}
  sandbox_image = "{{.Image}}"
{{- else}}
  stats_collect_period = "1h"
{{- end}}
{{- if .CNI}}
  netns_mounts_under_state_dir = true
[plugins.'{{.CRI}}'.cni]
  conf_dir = "{{.CNI}}"
  {{if eq .Version "1.7"}}bin_dir = "{{.CNIPlugins}}"{{else}}bin_dirs = ["{{.CNIPlugins}}"]{{end}}
{{- end}}
[plugins.'{{.CRI}}'.containerd]
  default_runtime_name = "runc"
{{- if eq .Version "1.7"}}
  snapshotter = "{{.Snapshotter}}"
{{- end}}
[plugins.'{{.CRI}}'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'{{.CRI}}'.containerd.runtimes.runc.options]
  BinaryName = "{{.Runc}}"
  Root = "{{.Dir}}/runc"
  SystemdCgroup = {{.Systemd}}
[plugins.'{{.CRI}}'.containerd.runtimes.broken]
  runtime_type = "io.containerd.runc.v2"
[plugins.'{{.CRI}}'.containerd.runtimes.broken.options]
  BinaryName = "{{.BrokenRunc}}"
  Root = "{{.Dir}}/runc"
`

// brokenRunc is a runc of which one verb fails for containers whose environment names that verb.
// The container's ID is the last argument of each verb.
const brokenRunc = `#!/bin/sh
for arg; do
	case "$arg" in
	create | start | update) verb=$arg ;;
	esac
done
if [ -n "$verb" ] && grep -qs "RUNC_FAILS=$verb\"" "%s/state/io.containerd.runtime.v2.task/k8s.io/$arg/config.json"; then
	echo "the test's runc fails $verb" >&2
	exit 1
fi
exec "%s" "$@"
`

// snapshotter returns the one that SLUICE_SNAPSHOTTER names, or else native, which works on every
// file system.
func snapshotter() string { return cmp.Or(os.Getenv("SLUICE_SNAPSHOTTER"), "native") }

func (rt *Runtime) writeConfig() error {
	values := struct {
		Version, CRI, Dir, Socket, NRISocket, PluginDir, PluginConfigDir, Image, Snapshotter, Runc, BrokenRunc string
		CNI, CNIPlugins                                                                                        string // "" without PodNetwork
		Registration, Request                                                                                  time.Duration
		Systemd                                                                                                bool
	}{
		Version: "2", CRI: "io.containerd.cri.v1.runtime",
		Dir: rt.Dir, Socket: rt.socket(), NRISocket: rt.NRISocket,
		PluginDir: rt.options.PluginDir, PluginConfigDir: rt.options.PluginConfigDir,
		Image: image, Snapshotter: snapshotter(), Runc: rt.tools.of("", "runc"), BrokenRunc: filepath.Join(rt.Dir, "broken-runc"),
		Registration: rt.options.RegistrationTimeout, Request: rt.options.RequestTimeout,
		Systemd: rt.options.Systemd,
	}
	if rt.options.PodNetwork {
		values.CNI, values.CNIPlugins = cniDir(rt.Dir), rt.tools.of("cni", "")
		if err := rt.makeNetwork(); err != nil {
			return err
		}
	}
	header := "version = 3"
	if rt.options.Containerd == "1.7" {
		values.Version, values.CRI, header = "1.7", "io.containerd.grpc.v1.cri", "version = 2"
	}
	for _, dir := range []*string{&values.PluginDir, &values.PluginConfigDir} {
		if *dir == "" {
			*dir = filepath.Join(rt.Dir, "empty")
		}
	}
	for _, dir := range []string{"empty", "nri", "logs"} {
		if err := os.Mkdir(filepath.Join(rt.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	var text strings.Builder
	text.WriteString(header)
	if err := template.Must(template.New("config").Parse(config)).Execute(&text, values); err != nil {
		return err
	}
	text.WriteString(rt.options.Config)
	if err := os.WriteFile(filepath.Join(rt.Dir, "config.toml"), []byte(text.String()), 0o600); err != nil {
		return err
	}
	return os.WriteFile(values.BrokenRunc, fmt.Appendf(nil, brokenRunc, rt.Dir, rt.tools.of("", "runc")), 0o700)
}
