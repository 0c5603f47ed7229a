package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/mod/semver"

	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
	"github.com/sluice-dev/sluice/pkg/status"
)

// runtimes lists the supported runtimes; the sockets are those of the CRI.
var runtimes = []struct {
	name, process, socket, config, more, nri string
}{
	{"containerd", "containerd", "run/containerd/containerd.sock", "etc/containerd/config.toml", "",
		"containerd 2.x: remove disable = true of [plugins.'io.containerd.nri.v1.nri'] from its configuration; 1.7: set disable = false there; then restart containerd"},
	{"CRI-O", "crio", "run/crio/crio.sock", "etc/crio/crio.conf", "etc/crio/crio.conf.d/*.conf",
		"set enable_nri = true in [crio.nri] of its configuration, and restart crio"},
	{"k3s' containerd", "containerd", "run/k3s/containerd/containerd.sock", "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "",
		"set disable = false in [plugins.'io.containerd.nri.v1.nri'] of its config.toml.tmpl, and restart k3s"},
}

// RuntimeSockets returns the usual paths of the supported runtimes' CRI sockets, below the
// host's root.
func RuntimeSockets() []string {
	sockets := make([]string, len(runtimes))
	for i := range runtimes {
		sockets[i] = runtimes[i].socket
	}
	return sockets
}

func (n *node) runtime() []Finding {
	if s := n.Status; s != nil && s.Runtime.Connected {
		findings := []Finding{ok("runtime", strings.TrimSpace(s.Runtime.Name+" "+s.Runtime.Version)+", connected")}
		if len(n.Runtimes) == 1 { // of several runtimes, the plugin's could be any
			for _, reported := range n.Runtimes {
				findings = append(findings, handlers(reported)...)
			}
		}
		return append(append(findings, n.capabilities()...), n.socket()...)
	}
	if n.Status != nil {
		return append([]Finding{fail("runtime", "the plugin runs and is not connected to a runtime", "see its log; check that the runtime runs and NRI is on")}, n.offline()...)
	}
	return n.offline()
}

// offline checks the runtime by the node's files.
func (n *node) offline() []Finding {
	for i := range runtimes {
		r := &runtimes[i]
		if !n.exists(r.socket) {
			continue
		}
		found := n.answers(r.name, r.process, r.socket)
		found = append(found, n.nriState(r.config, r.more, r.nri, n.Runtimes[r.socket])...)
		return append(found, n.socket()...)
	}
	if socket := n.nriSocket(); socket != "" {
		return append([]Finding{ok("NRI", "on, at /"+socket+"; its version is known once the plugin runs")}, n.socket()...)
	}
	return []Finding{fail("runtime", "neither containerd nor CRI-O has a socket in its usual place", "install and start one of them, or run Sluice with --socket for a runtime elsewhere")}
}

// answers checks the runtime at a socket by its own reports.
func (n *node) answers(name, process, socket string) []Finding {
	reported := n.Runtimes[socket]
	if reported != nil && reported.Name != "" {
		what := fmt.Sprintf("%s %s at /%s, as %s reports", reported.Name, reported.Version, socket, reported.From)
		return append([]Finding{ok("runtime", what)}, handlers(reported)...)
	}
	what := name + " at /" + socket
	if n.named(process) == nil {
		what += "; its process is not seen"
	}
	if reported != nil && len(reported.Problems) > 0 {
		return []Finding{warn("runtime", what+"; it does not answer: "+reported.Problems[0].Error(), "see the log of "+name+"; what follows is from its files")}
	}
	return []Finding{ok("runtime", what)}
}

// handlers checks how a runtime runs pods.
func handlers(reported *inspect.Facts) []Finding {
	if len(reported.Handlers) == 0 && reported.Driver == "" {
		return nil
	}
	what := "cgroup driver not reported"
	if reported.Driver != "" {
		what = "cgroup driver " + reported.Driver
	}
	if len(reported.Handlers) > 0 {
		what = some(reported.Handlers) + "; " + what
	}
	return []Finding{ok("handlers", what+", as CRI reports")}
}

// nriState checks whether NRI is on, by the runtime's report and by its files: no runtime
// reports whether a loaded NRI plugin is disabled.
func (n *node) nriState(config, more, do string, reported *inspect.Facts) []Finding {
	const by = ", as containerd's introspection service reports"
	var found []Finding
	loaded := ""
	if reported != nil {
		switch reported.NRI.State {
		case inspect.Missing:
			return []Finding{fail("NRI", "containerd has not loaded its NRI plugin"+by, "take io.containerd.nri.v1.nri out of disabled_plugins in its configuration; containerd before 1.7 has none. "+do)}
		case inspect.Broken:
			return []Finding{fail("NRI", "containerd's NRI plugin has failed: "+reported.NRI.Why+by, "fix what it reports, and restart containerd")}
		case inspect.Loaded:
			loaded = "; its plugin is loaded" + by
		case inspect.Unknown:
		}
	}
	off, file, err := n.nriOff(config, more)
	if err != nil {
		found = append(found, warn("configuration", fmt.Sprintf("/%s can't be read: %v", file, err), "correct the file"))
	}
	switch socket := n.nriSocket(); {
	case off && socket == "":
		return append(found, fail("NRI", "switched off in /"+file, do))
	case off:
		return append(found, warn("NRI", "/"+socket+" exists, but /"+file+" switches NRI off: after the runtime's next start it will be gone", do))
	case socket == "" && loaded != "":
		return append(found, fail("NRI", "no socket at /run/nri/nri.sock: NRI is switched off, or listens elsewhere"+loaded, do))
	case socket == "":
		return append(found, fail("NRI", "no socket at /run/nri/nri.sock: NRI is off, or the runtime has none", do))
	default:
		return append(found, ok("NRI", "on, at /"+socket+loaded+"; its version is known once the plugin runs"))
	}
}

// nriSocket returns the path of NRI's socket, "" if it doesn't exist.
func (n *node) nriSocket() string {
	for _, socket := range []string{"run/nri/nri.sock", "var/run/nri/nri.sock"} {
		if n.exists(socket) {
			return socket
		}
	}
	return ""
}

// socket warns of a socket that users other than root can open.
func (n *node) socket() []Finding {
	name := n.nriSocket()
	folder, err := fs.Stat(n.Host, strings.TrimSuffix(name, "/nri.sock"))
	if name == "" || err != nil {
		return nil
	}
	info, err := fs.Stat(n.Host, name)
	if err != nil || folder.Mode().Perm()&0o011 == 0 || info.Mode().Perm()&0o022 == 0 {
		return nil
	}
	return []Finding{warn("NRI socket", "/"+name+" can be opened by users other than root, who can then control every container", "chmod 0700 /"+strings.TrimSuffix(name, "/nri.sock"))}
}

// capabilities reports what the connected runtime's NRI supports, by its version: the runtime
// reports nothing else.
func (n *node) capabilities() []Finding {
	r := &n.Status.Runtime
	shown := r.NRIVersion
	if shown == "" {
		shown = "of unknown version, as old runtimes have it"
	}
	capability := func(name, least, has, lacks string) Finding {
		if semver.IsValid(r.NRIVersion) && semver.Compare(r.NRIVersion, least) >= 0 {
			return ok(name, has)
		}
		return note(name, lacks, "a newer runtime: one with NRI "+strings.TrimPrefix(least, "v")+" or later")
	}
	findings := []Finding{ok("NRI", shown),
		capability("pod resizes", "v0.10.0", "reported (UpdatePodSandbox)", "not reported: a resize of a whole pod is noticed through its containers"),
		capability("RDT class", "v0.11.0", "set before the container runs (rdt.closid)", "not carried by the runtime: Sluice moves the container's first process before it runs"),
		capability("failure policy", "v0.12.5", "known: failurePolicy: closed works", "not known: containers that start while Sluice is away are not held back"),
	}
	if r.RecordUpdates == status.RecordUpdatesOn {
		return append(findings, ok("record updates", "on: Sluice keeps the runtime's own record of containers up to date"))
	}
	return append(findings, note("record updates", "off: "+r.RecordUpdatesWhy, "no action needed: Sluice repairs within driftInterval what the runtime undoes; with NRI 0.12.1 it sends updates"))
}

// runtimeConfig has the fields of containerd's and CRI-O's configuration that affect Sluice.
type runtimeConfig struct {
	Imports  []string `toml:"imports"`          // containerd's: files and globs
	Disabled []string `toml:"disabled_plugins"` // containerd's
	Plugins  struct {
		NRI struct {
			Disable *bool `toml:"disable"`
		} `toml:"io.containerd.nri.v1.nri"`
		CRI struct {
			StatisticsPeriod string `toml:"stats_collect_period"` // "" for the default
		} `toml:"io.containerd.cri.v1.runtime"`
	} `toml:"plugins"`
	CRIO struct {
		NRI struct {
			Enable *bool `toml:"enable_nri"`
		} `toml:"nri"`
	} `toml:"crio"`
}

// off reports whether a file disables NRI; said reports whether the file has a setting for it.
func (c *runtimeConfig) off() (off, set bool) {
	switch {
	case slices.Contains(c.Disabled, "io.containerd.nri.v1.nri"):
		return true, true
	case c.Plugins.NRI.Disable != nil:
		return *c.Plugins.NRI.Disable, true
	case c.CRIO.NRI.Enable != nil:
		return !*c.CRIO.NRI.Enable, true
	}
	return false, false
}

func parseRuntime(text []byte) (c runtimeConfig, err error) {
	err = toml.Unmarshal(text, &c)
	return c, err
}

// nriOff reports whether the runtime's files disable NRI, and which file does, or which one can't be read.
func (n *node) nriOff(config, more string) (off bool, file string, err error) {
	files, err := n.runtimeFiles(config, more)
	if err != nil {
		return false, files[len(files)-1].name, err
	}
	for i := range files {
		if now, set := files[i].off(); set {
			off, file = now, files[i].name
		}
	}
	return off, file, nil
}

// runtimeFile is a file of a runtime's configuration.
type runtimeFile struct {
	name string
	runtimeConfig
}

// runtimeFiles reads a runtime's configuration. The last file with a setting decides; a missing file has
// none. With an error, the last file is the one that can't be read.
func (n *node) runtimeFiles(config, more string) (files []runtimeFile, err error) {
	names := append([]string{config}, n.glob(more)...)
	for i := 0; i < len(names); i++ {
		text, err := fs.ReadFile(n.Host, names[i])
		if err != nil {
			continue
		}
		c, err := parseRuntime(text)
		files = append(files, runtimeFile{names[i], c})
		if err != nil {
			return files, err
		}
		for _, pattern := range c.Imports {
			if !path.IsAbs(pattern) {
				pattern = path.Join("/", path.Dir(names[i]), pattern)
			}
			for _, name := range n.glob(strings.TrimPrefix(path.Clean(pattern), "/")) {
				if !slices.Contains(names, name) { // containerd imports each file once
					names = append(names, name)
				}
			}
		}
	}
	return files, nil
}

func (n *node) glob(pattern string) []string {
	names, err := fs.Glob(n.Host, pattern)
	if err != nil {
		return nil
	}
	return names
}
