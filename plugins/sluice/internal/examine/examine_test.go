package examine

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/host"
	"github.com/sluice-dev/sluice/topology"
)

// plugin answers with a status and to no other request.
type plugin struct{ status *status.Status }

func (p plugin) Status() (*status.Status, error) { return p.status, nil }

func (plugin) Machine() (*topology.Machine, error) { return nil, errors.New("no machine") }

func (plugin) WhatIf(*workload.Pod, []workload.Container) ([]status.Answer, error) { return nil, nil }

// serve serves a status on a socket until the test ends.
func serve(t *testing.T, s *status.Status) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "examine") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- statusapi.Serve(ctx, socket, plugin{s}) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			return socket
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestInThePod checks that in the plugin's container the host and the configuration are found
// through the running plugin, since its folders exist nowhere else.
func TestInThePod(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "proc"), 0o755), os.WriteFile(filepath.Join(root, "proc", "version"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s := statustest.Troubled()
	s.Build.HostRoot, s.Config.File = root, "/etc/sluice/pod.yaml"
	socket := serve(t, s)
	for _, test := range []struct{ given, root, config string }{
		{"", root, "/etc/sluice/pod.yaml"},
		{"/", "/", ""},
	} {
		o := &Options{HostRoot: test.given, Socket: socket}
		o.likeThePlugin()
		if o.HostRoot != test.root || o.Config != test.config {
			t.Errorf("--host-root %q: looks below %s with configuration %q", test.given, o.HostRoot, o.Config)
		}
	}
	if err := os.Remove(filepath.Join(root, "proc", "version")); err != nil {
		t.Fatal(err)
	}
	o := &Options{Socket: socket}
	if o.likeThePlugin(); o.HostRoot != "/" || o.Config != "" {
		t.Errorf("on the node it looks below %s with configuration %q", o.HostRoot, o.Config)
	}
}

// For an empty root, each fact is present or says why it is not.
func TestNodeOfNothing(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	f, err := Node(t.Context(), Options{HostRoot: root, Socket: filepath.Join(root, "s"), Version: "v1"})
	if err != nil || f.Config == nil || f.FeaturesErr == nil || f.StatusErr == nil || len(f.Runtimes) > 0 || f.Version != "v1" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Node(t.Context(), Options{HostRoot: filepath.Join(root, "none")}); err == nil {
		t.Error("a root that is not there is examined")
	}
}

// Limits on what batch work sends are examined where the configuration has them.
func TestEgress(t *testing.T) {
	t.Parallel()
	h := host.Open("/")
	defer h.Close()
	if h.NetworkErr != nil {
		t.Fatal(h.NetworkErr)
	}
	loop := control.Config{Mode: control.On, Egress: control.EgressConfig{Mode: control.Off, LinkSpeed: 1e9, Interfaces: []string{"lo"}}}
	if e := limits(&loop, h); e != nil {
		t.Errorf("they are off: %+v", e)
	}
	loop.Egress.Mode = "" // that of the loop
	if e := limits(&loop, h); e == nil || e.LinkErr != nil || e.Speed != 1e9 || !slices.Equal(e.Devices, []string{"lo"}) || (e.Err == nil) != (os.Geteuid() == 0) {
		t.Errorf("%+v", e)
	}
	loop.Egress.LinkSpeed = 0
	if e := limits(&loop, h); e.LinkErr == nil {
		t.Errorf("the loopback has a speed: %+v", e)
	}
	if e := limits(&loop, host.Open(t.TempDir())); !errors.Is(e.LinkErr, fs.ErrNotExist) || e.Err == nil {
		t.Errorf("of no host: %+v", e)
	}
}
