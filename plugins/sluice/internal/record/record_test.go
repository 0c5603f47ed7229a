package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/sampler"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
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

// host is a machine without containers whose plugin runs until the returned function is called.
func host(t *testing.T) (root, socket string, serve func() (stop func())) {
	t.Helper()
	root, err := os.MkdirTemp("", "record") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	tree := filepath.Join(root, "sys/fs/cgroup")
	proc := filepath.Join(root, "proc")
	if err := errors.Join(os.MkdirAll(tree, 0o755), os.Mkdir(proc, 0o755), os.WriteFile(filepath.Join(proc, "stat"), []byte("cpu  0 0 0 0 0 0 0 0 0 0\n"), 0o600),
		os.WriteFile(filepath.Join(tree, "cgroup.controllers"), []byte("cpu memory\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(root, "s")
	return root, socket, func() func() {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- statusapi.Serve(ctx, socket, plugin{}) }()
		for {
			if c, err := net.Dial("unix", socket); err == nil {
				c.Close()
				return func() { stop(); <-ended }
			}
			select {
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// A recording can be read again; it has one sample per interval, on the plugin's machine.
func TestNode(t *testing.T) {
	t.Parallel()
	root, socket, serve := host(t)
	defer serve()()
	var out bytes.Buffer
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	o := Options{HostRoot: root, Socket: socket, For: time.Minute, Interval: 100 * time.Millisecond}
	if err := Node(ctx, &lines{&out, 4, enough}, o); err != nil {
		t.Fatal(err)
	}
	recorded, err := recording.Read(&out)
	if err != nil || recorded.Machine.Online.Size() != 32 || !recorded.End.After(recorded.Start) {
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
	o.Days, o.Interval, o.MaxBytes = true, time.Minute, 1<<20
	if err := ToFile(t.Context(), file, o); err == nil || !strings.Contains(err.Error(), "name another file") {
		t.Errorf("a file of the other form: %v", err)
	}
	days := filepath.Join(root, "days.rec")
	for range 2 { // the second goes on with the first
		if err := ToFile(t.Context(), days, o); err != nil {
			t.Error(err)
		}
	}
	o.Socket = filepath.Join(root, "none")
	if err := ToFile(t.Context(), days, o); err == nil {
		t.Error("without a plugin it records")
	}
}

// A recording of days goes on while the plugin is away, and says so once.
func TestDaysOverARestart(t *testing.T) {
	t.Parallel()
	root, socket, serve := host(t)
	driver, err := cgroupfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	var out bytes.Buffer
	var notes []bool
	now := time.Now().Truncate(time.Minute).Add(time.Minute) // the sampler's clock begins now
	r := measuring{client: statusapi.NewClient(socket), now: func() time.Time { return now }, listEvery: time.Minute, delays: true, note: func(err error) { notes = append(notes, err == nil) }}
	if r.recorder, err = recording.NewDays(&out, time.Minute); err != nil {
		t.Fatal(err)
	}
	if r.sampler, err = sampler.Open(root, driver, nil, sampler.Intervals{Fast: 5 * time.Second, All: 5 * time.Second, Slow: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	defer r.sampler.Close()
	r.sampler.Now = r.now
	cgroup := filepath.Join(root, "sys/fs/cgroup", statustest.Calm().Containers[0].Cgroup)
	if err := os.MkdirAll(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	stop := serve()
	for second := 0; second < 600; second += 5 {
		switch second {
		case 180:
			stop()
		case 360:
			stop = serve()
		}
		usage := fmt.Sprintf("usage_usec %d\n", second*1_500_000) // 1.5 CPUs
		if err := os.WriteFile(filepath.Join(cgroup, "cpu.stat"), []byte(usage), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(5 * time.Second)
	}
	stop()
	if err := r.recorder.Close(); err != nil {
		t.Fatal(err)
	}
	recorded, err := recording.Read(&out)
	if err != nil || len(recorded.Tracks) != 1 || len(recorded.Tracks[0].Samples) != 10 {
		t.Fatalf("%+v, %v", recorded, err)
	}
	for _, s := range recorded.Tracks[0].Samples {
		if s.CPU < 1.48 || s.CPU > 1.52 {
			t.Errorf("%+v", s)
		}
	}
	if fmt.Sprint(notes) != "[false true]" {
		t.Errorf("notes %v", notes)
	}
}

// A file and its older part are never larger than they may be together, and are a recording when
// they are joined. What a killed recorder left is cut off.
func TestParts(t *testing.T) {
	t.Parallel()
	var block bytes.Buffer
	d, err := recording.NewDays(&block, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m, err := plugin{}.Machine()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Record(m, nil, &observe.Snapshot{Now: time.Now()}), d.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "days.rec")
	maxBytes := int64(5*block.Len() + 1)
	for i := range 9 {
		p, err := openParts(file, maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write(block.Bytes()); err != nil {
			t.Fatal(err)
		}
		if i == 4 {
			if _, err := p.file.Write(block.Bytes()[:block.Len()/2]); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for _, name := range []string{file, OlderPart(file)} {
			if info, err := os.Stat(name); err == nil {
				size += info.Size()
			}
		}
		if i != 4 && size > maxBytes {
			t.Errorf("%d bytes after %d blocks, want %d at most", size, i+1, maxBytes)
		}
	}
	older, err := os.ReadFile(OlderPart(file))
	if err != nil {
		t.Fatal(err)
	}
	newer, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := append(older, newer...)
	if n, err := recording.Whole(bytes.NewReader(all)); err != nil || n != int64(len(all)) || n != int64(3*block.Len()) {
		t.Errorf("%d of %d bytes are whole blocks: %v", n, len(all), err)
	}
}
