// Package examine collects the facts about a node that the doctor examines: its kernel, its
// container runtimes, the configuration and the running plugin.
package examine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/doctor"
	"github.com/sluice-dev/sluice/pkg/engine/egress"
	"github.com/sluice-dev/sluice/pkg/kernel/coresched"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/kernel/perf"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/daemon"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/statedir"
)

// Options say where to find the node's parts.
type Options struct {
	HostRoot string // folder with the host's files; "" for the running plugin's, otherwise /
	Config   string // file; "" for the running plugin's, otherwise the usual one
	Socket   string // the running plugin's status socket; "" for the configuration's
	Version  string // the version of this program
}

// Node collects the facts about a node. To probe the kernel, it creates an empty cgroup and, with control.egress, a
// network namespace for a moment, and with control.culprit.cpi it counts for a moment; it changes nothing else.
func Node(ctx context.Context, o Options) (*doctor.Facts, error) {
	f, err := o.find()
	if err != nil {
		return nil, err
	}
	h := host.Open(f.Root)
	defer h.Close() //nolint:errcheck // closing the host loses no data
	probe(f, h)
	f.Runtimes = daemon.AskRuntimes(ctx, f.Root)
	if h.Affinities != nil {
		f.Affinities, _ = h.Affinities.Read() // a partial result is fine
	}
	if f.IOCostErr = h.IOCostErr; h.IOCost != nil {
		f.IOCost, f.IOCostErr = h.IOCost.Read()
	}
	if f.NewidleErr = h.NewidleErr; h.Newidle != nil {
		f.Newidle, f.NewidleErr = h.Newidle.Read()
	}
	f.Disks, _ = iocost.Disks(f.Host) // doctor says nothing of disks that it can't read
	if f.Config != nil {
		f.Egress = limits(&f.Config.Control, h)
		f.Cycles = cycles(&f.Config.Control, f.Root)
		f.StateErr, f.RuntimeErr = statedir.Writable(f.Config.StateDir), statedir.Writable(f.Config.RuntimeDir)
		f.EvictErr = daemon.Evicts(f.Config, f.Root)
	}
	return f, nil
}

// find finds the host's root folder, the configuration and the running plugin.
func (o *Options) find() (*doctor.Facts, error) {
	o.likeThePlugin()
	root, err := filepath.Abs(o.HostRoot)
	if err != nil {
		return nil, err
	}
	if _, err := os.ReadDir(root); err != nil {
		return nil, fmt.Errorf("the host's root: %w", err)
	}
	f := &doctor.Facts{Host: os.DirFS(root), Root: root, Arch: runtime.GOARCH, Version: o.Version}
	o.readConfig(f)
	socket := cmp.Or(o.Socket, status.DefaultSocket)
	if f.Config != nil {
		socket = cmp.Or(o.Socket, f.Config.StatusSocket)
	}
	if s, err := readStatus(socket); err == nil {
		f.Status = s
	} else {
		f.StatusErr = err
	}
	return f, nil
}

// likeThePlugin takes the host's root folder from the running plugin if no option names one,
// and the configuration with it. It checks that the plugin's folders exist here: on the node
// itself, a plugin in a pod may answer, whose paths are those of the pod.
func (o *Options) likeThePlugin() {
	if o.HostRoot != "" {
		return
	}
	o.HostRoot = "/"
	s, err := readStatus(cmp.Or(o.Socket, status.DefaultSocket))
	if err != nil || s.Build.HostRoot == "" || s.Build.HostRoot == "/" {
		return
	}
	if _, err := os.Stat(filepath.Join(s.Build.HostRoot, "proc", "version")); err != nil {
		return
	}
	o.HostRoot, o.Config = s.Build.HostRoot, cmp.Or(o.Config, s.Config.File)
}

func (o *Options) readConfig(f *doctor.Facts) {
	f.ConfigFile = config.FileOr(o.Config, f.Root)
	if f.ConfigFile == "" {
		f.Config = config.Default()
		return
	}
	data, err := os.ReadFile(f.ConfigFile)
	if err == nil {
		f.Config, err = config.Parse(data)
	}
	if err != nil {
		f.Config, f.ConfigErr = nil, err
	}
}

// probe finds out what the kernel supports.
func probe(f *doctor.Facts, h *host.Host) {
	if h.Cgroups == nil {
		f.FeaturesErr = h.CgroupsErr
		return
	}
	features, err := h.Cgroups.Probe()
	f.Features, f.FeaturesErr = &features, err
	f.CoreSched, f.CoreSchedWhy = coresched.New().Supported()
}

// cycles finds out whether cycles per instruction can be counted; nil if nobody wants them.
func cycles(loop *control.Config, root string) *doctor.Cycles {
	if !loop.CountsCycles() {
		return nil
	}
	return &doctor.Cycles{Err: perf.New(root, perf.Instructions()).Probe()}
}

// limits finds out whether what batch work sends can be limited; nil if nothing decides about that.
func limits(loop *control.Config, h *host.Host) *doctor.Egress {
	cfg := &loop.Egress
	if cmp.Or(cfg.Mode, loop.Mode) == control.Off {
		return nil
	}
	e := &doctor.Egress{Err: network.Probe()}
	if h.NetworkErr != nil {
		e.Err, e.LinkErr = cmp.Or(e.Err, h.NetworkErr), h.NetworkErr
		return e
	}
	link, err := egress.Link{Devices: cfg.Interfaces, Speed: observe.BitRate(cfg.LinkSpeed)}.Find(h.Network)
	e.Devices, e.Speed, e.LinkErr = link.Devices, link.Speed, err
	return e
}

func readStatus(socket string) (*status.Status, error) { return statusapi.NewClient(socket).Status() }
