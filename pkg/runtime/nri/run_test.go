package nri

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/engine/node"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// patience limits waits for events that happen at once on an idle machine.
const patience = time.Minute

// plugin runs the plugin against a socket until the test ends.
func plugin(t *testing.T, socket string) *agent.Agent {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	return pluginOf(t, socket, agent.Options{Log: log})
}

// pluginOf is plugin with the options of its agent.
func pluginOf(t *testing.T, socket string, o agent.Options) *agent.Agent {
	t.Helper()
	m, err := synth.Machine("8 cores")
	if err != nil {
		t.Fatal(err)
	}
	o.Config, o.Machine, o.Host = config.Default(), m, fstest.MapFS{"proc": &fstest.MapFile{Mode: fs.ModeDir}}
	a, log := agent.New(o), o.Log
	ctx, stop := context.WithCancel(context.Background())
	loop, stopLoop := context.WithCancel(context.Background())
	done, result := make(chan struct{}), make(chan error, 1)
	go func() { a.Run(loop); close(done) }()
	go func() { result <- New(a, Options{Socket: socket, Index: "50", Name: "sluice", Log: log}).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-result; err != nil {
			t.Errorf("the plugin ended with %v", err)
		}
		stopLoop()
		<-done
	})
	return a
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func connected(t *testing.T, a *agent.Agent) bool {
	s, err := a.Status()
	if err != nil {
		t.Fatal(err)
	}
	return s.Runtime.Connected
}

func pin() *api.CreateContainerRequest {
	return &api.CreateContainerRequest{
		Pod: &api.PodSandbox{
			Id: "p", Uid: "u", Namespace: "default", Name: "db", Annotations: map[string]string{"class.sluice.dev": "LSR"},
			Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods/podu"},
		},
		Container: &api.Container{
			Id: "c", PodSandboxId: "p", Name: "c",
			Linux: &api.LinuxContainer{
				CgroupsPath: "/kubepods/podu/c",
				Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(int64(200000)), Period: api.UInt64(uint64(100000))}},
			},
		},
	}
}

// listen starts a runtime without containers that listens on runtime.sock in a folder.
func listen(t *testing.T, dir string) *adaptation.Adaptation {
	t.Helper()
	r, err := adaptation.New("test", "1", func(ctx context.Context, all adaptation.SyncCB) error {
		_, err := all(ctx, nil, nil)
		return err
	}, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(filepath.Join(dir, "runtime.sock")), adaptation.WithPluginPath(dir), adaptation.WithPluginConfigPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// TestReconnect checks that a broken connection is replaced, and that there are never two at a
// time, because their replies would conflict with each other.
func TestReconnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := listen(t, dir)
	w := wire(t, filepath.Join(dir, "nri.sock"), filepath.Join(dir, "runtime.sock"))
	a := plugin(t, filepath.Join(dir, "nri.sock"))
	for range 3 {
		var reply *api.CreateContainerResponse
		wait(t, "an adjustment", func() bool {
			var err error
			if reply, err = r.CreateContainer(context.Background(), pin()); err != nil {
				t.Fatal(err)
			}
			return reply.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus() != ""
		})
		if got := reply.GetAdjust().GetLinux().GetResources().GetCpu(); got.GetCpus() != "0-1" || got.GetQuota().GetValue() != -1 {
			t.Errorf("got %v", got)
		}
		w.cut()
		wait(t, "the end of the connection", func() bool { return !connected(t, a) })
	}
	if got := w.most.Load(); got != 1 {
		t.Errorf("%d connections at once", got)
	}
}

// TestEndWhileConfiguring checks that a plugin which is stopped while the runtime configures it
// ends only after Configure has returned, so that all that Configure has started is ended too.
func TestEndWhileConfiguring(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	listen(t, dir)
	begun, finish, finished := make(chan struct{}), make(chan struct{}), false
	configure := sync.OnceValue(func() error {
		close(begun)
		<-finish
		finished = true
		return errors.New("this is a test")
	})
	log := logrus.New()
	log.SetOutput(io.Discard)
	p := New(nil, Options{Socket: filepath.Join(dir, "runtime.sock"), Index: "50", Name: "sluice", Log: log, Configure: func(string, *Options) (*agent.Agent, error) {
		return nil, configure()
	}})
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- p.Run(ctx) }()
	select {
	case <-begun:
	case err := <-result:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("it is not configured")
	}
	stop()
	select {
	case err := <-result:
		t.Errorf("it ends before it is configured: %v", err)
		close(finish)
		return
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if err := <-result; err != nil || !finished {
		t.Errorf("it ends with %v", err)
	}
}

// TestRuntimeDiesWhileRegistering checks that the plugin tries again if the runtime ends after the
// registration and before the configuration.
func TestRuntimeDiesWhileRegistering(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "nri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	plugin(t, socket)
	for range 3 {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		registered := make(chan struct{})
		mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead()) // it drops a request that comes before the server listens
		runtime, err := mux.Listen(multiplex.RuntimeServiceConn)
		if err != nil {
			t.Fatal(err)
		}
		server, err := ttrpc.NewServer()
		if err != nil {
			t.Fatal(err)
		}
		api.RegisterRuntimeService(server, &dying{registered: registered})
		go server.Serve(context.Background(), runtime)
		mux.Unblock()
		select {
		case <-registered:
		case <-time.After(patience):
			t.Fatal("no registration")
		}
		// A graceful shutdown sends the pending reply first.
		server.Shutdown(context.Background())
		mux.Close()
	}
}

// dying is a runtime that ends after a registration.
type dying struct {
	api.RuntimeService
	registered chan struct{}
}

func (d *dying) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(d.registered)
	return &api.Empty{}, nil
}

// TestPreInstalled uses a connection that the runtime has left open, and no other.
func TestPreInstalled(t *testing.T) {
	ends := socketPair(t)
	t.Setenv(api.PluginSocketEnvVar, ends.number)
	t.Setenv(api.PluginNameEnvVar, "sluice")
	t.Setenv(api.PluginIdxEnvVar, "10")
	p := New(nil, Options{Socket: "/nowhere"})
	conn, err := p.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := ends.runtime.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if !PreInstalled() {
		t.Error("not known as pre-installed")
	}
	t.Setenv(api.PluginSocketEnvVar, "three")
	if _, err := p.dial(context.Background()); err == nil || !strings.Contains(err.Error(), "three") {
		t.Errorf("got %v", err)
	}
}

// held is a runtime that makes updates when the test says so.
type held struct{ begun, finish chan struct{} }

func (h held) Update(node.Update) error {
	h.begun <- struct{}{}
	<-h.finish
	return nil
}

// TestStopInAnUpdate checks that a plugin which is stopped while the runtime updates its record of a
// container ends after the runtime's answer, and answers requests until then.
func TestStopInAnUpdate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := listen(t, dir)
	kernel := fakekernel.New(fakekernel.MainlineV2())
	driver, err := kernel.Driver()
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	m, err := synth.Machine("8 cores")
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	cfg := config.Default()
	cfg.RecordUpdates.Delay = 0
	a := agent.New(agent.Options{Config: cfg, Machine: m, Host: fstest.MapFS{"proc": &fstest.MapFile{Mode: fs.ModeDir}}, Kernel: driver, Log: log})
	ctx, stop := context.WithCancel(t.Context())
	loop, stopLoop := context.WithCancel(t.Context())
	done, result := make(chan struct{}), make(chan error, 1)
	go func() { a.Run(loop); close(done) }()
	defer func() { stopLoop(); <-done }()
	go func() {
		result <- New(a, Options{Socket: filepath.Join(dir, "runtime.sock"), Index: "50", Name: "sluice", Log: log}).Run(ctx)
	}()
	create := func(id string) (cpus string) {
		request := pin()
		request.Container.Id = id
		reply, err := r.CreateContainer(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus()
	}
	wait(t, "an adjustment", func() bool { return create("early") != "" })
	updates := held{make(chan struct{}, 10), make(chan struct{})}
	a.Connected(updates, status.Runtime{}, "") // a test's build has no versions, so that NRI's counts as too old for updates
	var pods []*workload.Pod
	var containers []workload.Container
	for id, class := range map[string]string{"web": "LS", "db": "LSR"} { // the plugin finds both: web has to leave the CPUs of db
		pods = append(pods, &workload.Pod{ID: id, UID: id, Namespace: "ns", Name: id, CgroupParent: "/kubepods/pod-" + id, Annotations: map[string]string{"class.sluice.dev": class}})
		containers = append(containers, workload.Container{
			ID: id, PodID: id, Name: "c", CgroupsPath: "/kubepods/pod-" + id + "/c", State: workload.Running,
			Resources: workload.Resources{Shares: 1024, Quota: 100000, Period: 100000},
		})
		kernel.Mkdir(containers[len(containers)-1].CgroupsPath)
	}
	if _, err := a.Synchronize(t.Context(), pods, containers); err != nil {
		t.Fatal(err)
	}
	select {
	case <-updates.begun:
	case <-time.After(patience):
		t.Fatal("the runtime's record is not updated")
	}
	stop()
	if create("late") == "" {
		t.Error("a container gets nothing while the plugin waits for the runtime")
	}
	select {
	case err := <-result:
		t.Errorf("it does not wait for the runtime: %v", err)
		result <- err
	default:
	}
	close(updates.finish)
	if err := <-result; err != nil {
		t.Error(err)
	}
}
