package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// CRIO stands for CRI-O in Options.Containerd.
const CRIO = "crio"

// crioVariable is the environment variable with CRI-O's folder: crio, pinns and conmon, and crun
// for Options.Crun.
const crioVariable = "SLUICE_CRIO"

// crioPrefix is the prefix of the names of CRI-O's cgroups.
const crioPrefix = "crio-"

func (o Options) crio() bool { return o.Containerd == CRIO }

// TakesSlices reports whether pods' cgroups may be named like systemd's slices. CRI-O refuses such
// names with the cgroupfs driver.
func (rt *Runtime) TakesSlices() bool { return rt.options.Systemd || !rt.options.crio() }

// crioTool returns the path of a program in CRI-O's folder.
func crioTool(name string) string { return filepath.Join(os.Getenv(crioVariable), name) }

// CRIOPrograms returns the paths of CRI-O's programs, including crun if that is the OCI runtime,
// or an error that says what is missing.
func CRIOPrograms(crun bool) ([]string, error) {
	if os.Getenv(crioVariable) == "" {
		return nil, errors.New("no registry that every machine reaches has CRI-O itself: its tests run where " + crioVariable + " names a folder with one (the programs crio, pinns and conmon)")
	}
	programs := []string{crioTool("crio"), crioTool("pinns"), crioTool("conmon")}
	if crun {
		programs = append(programs, crioTool("crun"))
	}
	for _, path := range programs {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s names a folder without %s: %w", crioVariable, filepath.Base(path), err)
		}
	}
	return programs, nil
}

// crioConfig is CRI-O's main configuration. All paths are the test's own. The vfs storage driver
// works on every file system.
const crioConfig = `
[crio]
root = "{{.Dir}}/root"
runroot = "{{.Dir}}/state"
imagestore = ""
storage_driver = "vfs"
log_dir = "{{.Dir}}/podlogs"
version_file = "{{.Dir}}/version"
version_file_persist = "{{.Dir}}/version-persist"
clean_shutdown_file = "{{.Dir}}/clean.shutdown"
internal_wipe = false
[crio.api]
listen = "{{.Socket}}"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.image]
pause_image = "{{.Image}}"
pause_command = ""
signature_policy = "{{.Dir}}/policy.json"
[crio.network]
network_dir = "{{.CNI}}"
plugin_dirs = ["{{.CNIPlugins}}"]
[crio.runtime]
cgroup_manager = "{{.Manager}}"
conmon_cgroup = "{{.Monitor}}"
default_runtime = "runc"
pinns_path = "{{.Pinns}}"
namespaces_dir = "{{.Dir}}/ns"
container_exits_dir = "{{.Dir}}/exits"
container_attach_socket_dir = "{{.Dir}}/attach"
hooks_dir = []
pids_limit = -1
disable_hostport_mapping = true
log_level = "info"
{{- range $name, $path := .Runtimes}}
[crio.runtime.runtimes.{{$name}}]
runtime_path = "{{$path}}"
runtime_type = "oci"
runtime_root = "{{$.Dir}}/runc"
monitor_path = "{{$.Conmon}}"
monitor_cgroup = "{{$.Monitor}}"
{{- end}}
`

// crioDropIn configures NRI as the shipped file does.
const crioDropIn = `
[crio.nri]
enable_nri = true
nri_listen = "{{.NRISocket}}"
nri_disable_connections = false
nri_plugin_dir = "{{.PluginDir}}"
nri_plugin_config_dir = "{{.PluginConfigDir}}"
nri_plugin_registration_timeout = "{{.Registration}}"
nri_plugin_request_timeout = "{{.Request}}"
`

// crioRunc is the OCI runtime as CRI-O calls it. Its arguments are the program, the runtime's
// folder, "broken" if the verb in the container's environment has to fail, and the version to
// write into the bundle, "" for none.
//
// Negative OOM scores need CAP_SYS_RESOURCE. Unlike containerd, CRI-O has no option to restrict
// them, so the script removes them from the bundle after NRI has seen them.
const crioRunc = `#!/bin/sh
next= bundle= verb=
for arg; do
	[ "$next" = bundle ] && bundle=$arg
	next=
	case "$arg" in
	--bundle | -b) next=bundle ;;
	--bundle=*) bundle=${arg#--bundle=} ;;
	create | start | update) verb=$arg ;;
	esac
done
if [ -n "$bundle" ]; then
	sed -i -E 's/"oomScoreAdj": *-[0-9]+/"oomScoreAdj":0/' "$bundle/config.json"
	[ -z "%[4]s" ] || sed -i -E 's/"ociVersion": *"[^"]*"/"ociVersion":"%[4]s"/' "$bundle/config.json"
fi
if [ -n "%[3]s" ] && [ -n "$verb" ] && grep -qs "RUNC_FAILS=$verb\"" "%[2]s"/state/*-containers/"$arg"/userdata/config.json; then
	echo "the test's runc fails $verb" >&2
	exit 1
fi
exec "%[1]s" "$@"
`

// crunSpec is the newest version of the OCI specification that crun 1.8 accepts; CRI-O writes
// newer ones.
const crunSpec = "1.0.2"

func (rt *Runtime) writeCRIO() error {
	values := struct {
		Dir, Socket, NRISocket, PluginDir, PluginConfigDir, Image, Conmon, Pinns, Manager, Monitor string
		CNI, CNIPlugins                                                                            string
		Registration, Request                                                                      time.Duration
		Runtimes                                                                                   map[string]string
	}{
		Dir: rt.Dir, Socket: rt.socket(), NRISocket: rt.NRISocket,
		PluginDir: rt.options.PluginDir, PluginConfigDir: rt.options.PluginConfigDir,
		Image: image, Conmon: crioTool("conmon"), Pinns: crioTool("pinns"),
		CNI: cniDir(rt.Dir), CNIPlugins: rt.tools.of("cni", ""),
		Registration: rt.options.RegistrationTimeout, Request: rt.options.RequestTimeout,
		Manager: "cgroupfs", Monitor: "pod",
		Runtimes: map[string]string{"runc": filepath.Join(rt.Dir, "tamed-runc"), Broken: filepath.Join(rt.Dir, "broken-runc")},
	}
	if rt.options.Systemd {
		values.Manager, values.Monitor = "systemd", "system.slice"
	}
	for _, dir := range []*string{&values.PluginDir, &values.PluginConfigDir} {
		if *dir == "" {
			*dir = filepath.Join(rt.Dir, "empty")
		}
	}
	for _, dir := range []string{"empty", "nri", "logs", "crio.conf.d", "registries.conf.d"} {
		if err := os.Mkdir(filepath.Join(rt.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	network := func() error { return os.Mkdir(values.CNI, 0o700) } // CRI-O wants the folder, also without a network in it
	if rt.options.PodNetwork {
		network = rt.makeNetwork
	}
	if err := network(); err != nil {
		return err
	}
	write := func(name, text string) error {
		var out strings.Builder
		if err := template.Must(template.New(name).Parse(text)).Execute(&out, values); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(rt.Dir, name), []byte(out.String()), 0o600)
	}
	program, version := rt.tools.of("", "runc"), ""
	if rt.options.Crun {
		program, version = crioTool("crun"), crunSpec
	}
	return errors.Join(
		write("crio.conf", crioConfig), write("crio.conf.d/10-sluice.conf", crioDropIn+rt.options.Config),
		write("policy.json", `{"default": [{"type": "insecureAcceptAnything"}]}`),
		write("registries.conf", ""),
		os.WriteFile(values.Runtimes["runc"], fmt.Appendf(nil, crioRunc, program, rt.Dir, "", version), 0o700),
		os.WriteFile(values.Runtimes[Broken], fmt.Appendf(nil, crioRunc, program, rt.Dir, "broken", version), 0o700),
	)
}

// crioCommand returns the command line that starts CRI-O with a registry configuration of the
// test.
func (rt *Runtime) crioCommand() (env, words []string) {
	env = append(os.Environ(), "CONTAINER_REGISTRIES_CONF="+filepath.Join(rt.Dir, "registries.conf"), "CONTAINER_REGISTRIES_CONF_DIR="+filepath.Join(rt.Dir, "registries.conf.d"))
	return env, []string{crioTool("crio"), "--config", filepath.Join(rt.Dir, "crio.conf"), "--config-dir", filepath.Join(rt.Dir, "crio.conf.d")}
}
