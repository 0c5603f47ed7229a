package record

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
)

// plugin is a running plugin on a node without problems.
type plugin struct{}

func (plugin) Status() (*status.Status, error) { return statustest.Calm(), nil }

func (plugin) Machine() (*topology.Machine, error) { return synth.Machine("2 nodes 8 cores 2 threads") }

func (plugin) WhatIf(*workload.Pod, []workload.Container) ([]status.Answer, error) { return nil, nil }

// lines calls then after that many lines.
type lines struct {
	io.Writer
	left int
	then func()
}

func (l *lines) Write(text []byte) (int, error) {
	if l.left -= bytes.Count(text, []byte("\n")); l.left <= 0 {
		l.then()
	}
	return l.Writer.Write(text)
}

// A recording can be read again; it has one sample per interval, on the plugin's machine.
func TestNode(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "record") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	tree := filepath.Join(root, "sys/fs/cgroup")
	proc := filepath.Join(root, "proc")
	if err := errors.Join(os.MkdirAll(tree, 0o755), os.Mkdir(proc, 0o755), os.WriteFile(filepath.Join(proc, "stat"), []byte("cpu  0 0 0 0 0 0 0 0 0 0\n"), 0o600),
		os.WriteFile(filepath.Join(tree, "cgroup.controllers"), []byte("cpu memory\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(root, "s")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- statusapi.Serve(ctx, socket, plugin{}) }()
	defer func() { stop(); <-ended }()
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	var out bytes.Buffer
	recording, enough := context.WithCancel(t.Context())
	defer enough()
	o := Options{HostRoot: root, Socket: socket, For: time.Minute, Interval: 100 * time.Millisecond}
	if err := Node(recording, &lines{&out, 4, enough}, o); err != nil {
		t.Fatal(err)
	}
	recorded, err := sim.ReadRecording(&out)
	if err != nil || recorded.Machine.Online.Size() != 32 || len(recorded.Snapshots) == 0 {
		t.Errorf("%+v, %v", recorded, err)
	}
	file := filepath.Join(root, "recording.jsonl")
	o.For = 2 * o.Interval
	if err := ToFile(t.Context(), file, o); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.HasPrefix(text, []byte(`{"machine":`)) {
		t.Errorf("the file begins with %.40q, %v", text, err)
	}
	if err := ToFile(t.Context(), file, o); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
	o.Socket = filepath.Join(root, "none")
	if err := Node(t.Context(), &out, o); err == nil {
		t.Error("without a plugin it records")
	}
}
