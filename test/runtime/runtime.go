// Package runtime runs a private, real containerd or CRI-O for tests and for the demo, with its
// own sockets of CRI and NRI, pods in cgroups as the kubelet makes them, and the sluice binary
// beside it.
//
// Everything that a Runtime starts is in one cgroup tree and one temporary folder. Close ends and
// removes both, whatever their state. The next Start removes what a killed test has left behind.
package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/host"
)

// Options says what to start. The zero value is containerd 2 with the
// repository's own tools.
type Options struct {
	Containerd string // version, "2" (the default) or "1.7", or CRIO
	Tools      string // folder of the tools; "" for $SLUICE_TOOLS, or else bin/tools of the repository
	Crun       bool   // use crun, which nests cgroups, as CRI-O's OCI runtime in place of runc
	Systemd    bool   // pods are slices and containers scopes of the machine's systemd rather than plain cgroups
	// HighWeight gives the Runtime's cgroup 16 times the usual CPU weight, so that containers
	// get CPU time beside whatever else a busy machine does. A benchmark's load comes from
	// outside of that cgroup, and must compete on equal terms.
	HighWeight bool

	PluginDir       string // folder of pre-installed NRI plugins; "" for an empty one
	PluginConfigDir string // folder of their configurations; "" for an empty one
	// The NRI timeouts; 0 stands for 30 s each, so that a busy machine fails no test.
	RegistrationTimeout, RequestTimeout time.Duration

	// PodNetwork lets pods have network namespaces of their own: see PodSpec.OwnNetwork. The network
	// is a bridge of this machine.
	PodNetwork bool

	Config string // TOML that is appended to the configuration of containerd, or to the file with CRI-O's settings of NRI
}

// Broken is the runtime handler whose runc fails the verb in ContainerSpec.RuncFails.
const Broken = "broken"

const (
	image      = "localhost/sluice/probe:1"
	namePrefix = "sluicetest-"
)

// Runtime is a running containerd or CRI-O.
type Runtime struct {
	Dir       string // folder of all files
	NRISocket string

	options Options
	tools   tools
	tree    host.Tree
	host    atomic.Pointer[HostApplication] // that runs; nil for none
	process *host.Process
	conn    *grpc.ClientConn
	cri     cri.RuntimeServiceClient
	images  cri.ImageServiceClient
	quiet   *quiet // nil until a plugin needs it
}

func (o Options) withDefaults() Options {
	if o.Containerd == "" {
		o.Containerd = "2"
	}
	if o.RegistrationTimeout == 0 {
		o.RegistrationTimeout = 30 * time.Second
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 30 * time.Second
	}
	return o
}

// Unavailable says why Start can't work on this machine, or returns nil if it can.
func Unavailable(options Options) error {
	options = options.withDefaults()
	if os.Geteuid() != 0 {
		return errors.New("real containers need root")
	}
	tools, err := options.tools()
	if err != nil {
		return err
	}
	needed := []string{tools.of("", "runc"), tools.of("", "probe")}
	if options.crio() {
		if _, err := CRIOPrograms(options.Crun); err != nil {
			return err
		}
	} else {
		needed = append(needed, tools.of(options.Containerd, "containerd"), tools.of(options.Containerd, "containerd-shim-runc-v2"), tools.of(options.Containerd, "ctr"))
	}
	if options.PodNetwork {
		if err := networkUnavailable(); err != nil {
			return err
		}
		for _, plugin := range cniPlugins() {
			needed = append(needed, tools.of("cni", plugin))
		}
	}
	for _, path := range needed {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%s is missing: run make tools, or set SLUICE_TOOLS to the folder that has it", path)
		}
	}
	probe := host.Tree{Name: fmt.Sprintf("%s%d-available", namePrefix, os.Getpid())}
	if probe.Mounts, err = host.Mounts(); err != nil {
		return err
	}
	if err := errors.Join(probe.Create(probe.Name), probe.Remove(probe.Name)); err != nil {
		return fmt.Errorf("cgroups can't be created here: %w", err)
	}
	return nil
}

// Start starts the runtime, imports the image, and returns when a pod can run.
func Start(options Options) (*Runtime, error) {
	options = options.withDefaults()
	tools, err := options.tools()
	if err != nil {
		return nil, err
	}
	hierarchies, err := host.Mounts()
	if err != nil {
		return nil, err
	}
	if err := sweep(hierarchies); err != nil {
		return nil, fmt.Errorf("removing what an earlier test left: %w", err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", namePrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	rt := &Runtime{
		Dir:       dir,
		NRISocket: filepath.Join(dir, "nri", "nri.sock"),
		options:   options,
		tools:     tools,
		tree:      host.Tree{Name: filepath.Base(dir), Mounts: hierarchies, HighWeight: options.HighWeight},
	}
	if err := rt.setUp(); err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	return rt, nil
}

func (rt *Runtime) setUp() error {
	if err := rt.tree.Create(rt.tree.Processes()); err != nil {
		return err
	}
	file, unit := "cpu.shares", 1024
	if rt.V2() {
		file, unit = "cpu.weight", 100
	}
	if rt.V2() || rt.options.HighWeight { // gives the runtime and Sluice precedence over pods, see configs/systemd
		if err := rt.tree.Write(rt.tree.Processes(), file, strconv.Itoa(10*unit)); err != nil {
			return err
		}
	}
	if rt.options.HighWeight {
		if err := rt.tree.Write(rt.tree.Name, file, strconv.Itoa(16*unit)); err != nil {
			return err
		}
	}
	write, bringImage := rt.writeConfig, rt.importImage
	if rt.options.crio() {
		write, bringImage = rt.writeCRIO, rt.pullImage
	}
	if err := write(); err != nil {
		return err
	}
	var err error
	rt.conn, err = grpc.NewClient("unix://"+rt.socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}}))
	if err != nil {
		return err
	}
	rt.cri = cri.NewRuntimeServiceClient(rt.conn)
	rt.images = cri.NewImageServiceClient(rt.conn)
	if err := rt.Restart(); err != nil {
		return err
	}
	return bringImage()
}

// Kill ends the runtime as a crash would. Containers continue to run.
func (rt *Runtime) Kill() error { return rt.process.Kill() }

// Restart starts the runtime with its old state. If it runs, it is killed first.
func (rt *Runtime) Restart() error {
	if rt.process != nil {
		if err := rt.process.Kill(); err != nil {
			return err
		}
	}
	env, words := os.Environ(), []string{rt.tools.of(rt.options.Containerd, "containerd"), "--config", filepath.Join(rt.Dir, "config.toml")}
	if rt.options.crio() {
		env, words = rt.crioCommand()
	}
	var err error
	rt.process, err = rt.tree.Start(rt.logPath(), env, words[0], words[1:]...)
	if err != nil {
		return err
	}
	return rt.process.Await("the runtime to answer on "+rt.socket(), func() error {
		ctx, cancel := host.CallContext()
		defer cancel()
		status, err := rt.cri.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.GetStatus().GetConditions() {
			needed := condition.GetType() == cri.RuntimeReady || rt.options.PodNetwork && condition.GetType() == cri.NetworkReady
			if needed && !condition.GetStatus() {
				return fmt.Errorf("%s: %s", condition.GetReason(), condition.GetMessage())
			}
		}
		return nil
	})
}

// Close ends every process and removes every cgroup, mount, file and network interface.
func (rt *Runtime) Close() error {
	var errs []error
	if rt.quiet != nil {
		errs = append(errs, rt.quiet.close())
	}
	if rt.conn != nil {
		errs = append(errs, rt.conn.Close())
	}
	if rt.options.Systemd {
		errs = append(errs, systemctl("stop", rt.slices()[0][1:]))
	}
	if err := errors.Join(append(errs, clean(&rt.tree, rt.Dir))...); err != nil {
		return fmt.Errorf("closing the runtime in %s: %w", rt.Dir, err)
	}
	return nil
}

// Log returns what the runtime has logged.
func (rt *Runtime) Log() string { return host.ReadLog(rt.logPath()) }

// V2 reports whether pods' knobs are those of cgroup v2.
func (rt *Runtime) V2() bool { return rt.tree.V2() }

// Systemd reports whether pods are slices of the machine's systemd.
func (rt *Runtime) Systemd() bool { return rt.options.Systemd }

// CgroupRoot returns the path of the cgroup above the runtime's kubepods, below each controller's
// root: "/sluicetest-...".
func (rt *Runtime) CgroupRoot() string { return "/" + rt.tree.Name }

// kubepods returns the path of the cgroup of all pods.
func (rt *Runtime) kubepods() string {
	if rt.options.Systemd {
		return filepath.Join(rt.slices()...)
	}
	return filepath.Join(rt.CgroupRoot(), "kubepods")
}

// class returns the path of the cgroup of a QoS class, "burstable" or "besteffort".
func (rt *Runtime) class(name string) string {
	if rt.options.Systemd {
		return filepath.Join(rt.slices(name)...)
	}
	return filepath.Join(rt.kubepods(), name)
}

// Socket returns the path of the CRI socket.
func (rt *Runtime) Socket() string { return rt.socket() }

func (rt *Runtime) socket() string  { return filepath.Join(rt.Dir, "containerd.sock") }
func (rt *Runtime) logPath() string { return filepath.Join(rt.Dir, "containerd.log") }

// tools is a folder with what `make tools` builds.
type tools string

func (o Options) tools() (tools, error) {
	if o.Tools != "" {
		return tools(o.Tools), nil
	}
	if dir := os.Getenv("SLUICE_TOOLS"); dir != "" {
		return tools(dir), nil
	}
	root, err := repository()
	return tools(filepath.Join(root, "bin", "tools")), err
}

// of returns the path of a tool; containerd's own are in a folder per version, and the CNI plugins
// in "cni".
func (t tools) of(version, name string) string { return filepath.Join(string(t), version, name) }

// sluice returns the path of the plugin, which is built beside the tools.
func (t tools) sluice() string { return filepath.Join(filepath.Dir(string(t)), "sluice") }

// repository returns the folder of the module that contains the working directory.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/sluice-dev/sluice\n") {
			return dir, nil
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return "", errors.New("the working directory is outside the repository: set SLUICE_TOOLS")
	}
}
