package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/view/whatif"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/manifest"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with testdata/name.golden.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got:\n%s", file, text)
	}
}

// result is the result of a command line.
type result struct {
	exit      int
	out, errs string
}

func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	exit := execute(args, strings.NewReader(in), &out, &errs)
	return result{exit, out.String(), errs.String()}
}

// plugin is a running plugin with as much as its socket shows.
type plugin struct {
	status  *status.Status
	planner whatif.Empty
}

func (p plugin) Status() (*status.Status, error) {
	if p.status == nil {
		return nil, errors.New("sluice is shutting down")
	}
	return p.status, nil
}

func (p plugin) Machine() (*topology.Machine, error) { return p.planner.Machine, nil }

func (p plugin) WhatIf(pod *workload.Pod, containers []workload.Container) ([]status.Answer, error) {
	return p.planner.Plan(manifest.Pod{Sandbox: pod, Containers: containers})
}

// silent is a plugin of another version, which answers no known request.
type silent struct{ plugin }

func (silent) WhatIf(*workload.Pod, []workload.Container) ([]status.Answer, error) { return nil, nil }

// serve starts the plugin's socket and returns its path.
func serve(t *testing.T, p statusapi.Source, more ...statusapi.Route) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- statusapi.Serve(ctx, socket, p, more...) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	for {
		if c, err := net.Dial("unix", socket); err == nil {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			return socket
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

func machine(t *testing.T, text string) *topology.Machine {
	t.Helper()
	m, err := synth.Machine(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func testPlanner(t *testing.T, text string) whatif.Empty {
	t.Helper()
	return whatif.Empty{Config: config.Default(), Machine: machine(t, text)}
}

// file writes a file for a command to read.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func checkWidth(t *testing.T, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if n := utf8.RuneCountInString(line); n > terminal.Columns {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
