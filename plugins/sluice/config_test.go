package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

func TestConfigShow(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if exit := execute([]string{"config", "show", "-f", "-"}, strings.NewReader("reserved: \"0\"\n"), &out, &errs); exit != 0 {
		t.Fatal(errs.String())
	}
	c, err := config.Parse(out.Bytes())
	if err != nil || c.Reserved != cpuset.Of(0) || !strings.Contains(out.String(), "fastInterval: 100ms") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestConfigSchema(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if exit := execute([]string{"config", "schema"}, nil, &out, &errs); exit != 0 || !json.Valid(out.Bytes()) {
		t.Error(errs.String())
	}
}

func TestConfigDiff(t *testing.T) {
	t.Parallel()
	diff := status.ConfigDiff{
		Keys:    []status.KeyChange{{Key: "reserved", To: "0"}, {Key: "log.file", From: "/a", To: "/b"}},
		Restart: []string{"log.file"},
		Pools:   []status.PoolChange{{Name: "online", From: cpuset.Range(0, 3), To: cpuset.Range(1, 3)}},
		Containers: []status.ContainerChange{{
			Ref: "shop/db/main", From: status.Place{Class: workload.LS, Pool: "online"}, To: status.Place{Class: workload.LSR, CPUs: cpuset.Of(2)},
			Keys: []status.KeyChange{{Key: "weight", To: "50% (config classes.LS)"}}, Problem: "a warning",
		}},
		Warnings: []string{"this machine has no CPUs 9"},
	}
	socket := serve(t, plugin{}, statusapi.ConfigRoute(func([]byte) (*status.ConfigDiff, error) { return &diff, nil }))
	var out, errs bytes.Buffer
	run := func(text string, args ...string) int {
		out.Reset()
		errs.Reset()
		return execute(append([]string{"config", "diff", "-", "--status-socket", socket}, args...), strings.NewReader(text), &out, &errs)
	}
	if exit := run("reserved: \"0\"\n"); exit != exitChanges || errs.String() != "" {
		t.Errorf("exit %d, %s", exit, errs.String())
	}
	const want = `Keys
  reserved  none  →  0
  log.file  /a    →  /b
Only after a restart of Sluice: log.file
Pools
  online  0-3  →  1-3
Containers
  shop/db/main
    LS in online on CPUs all  →  LSR on CPUs 2
    weight  none  →  50% (config classes.LS)
    !  a warning
Warning: this machine has no CPUs 9
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if exit := run("", "-o", "json"); exit != exitChanges || !json.Valid(out.Bytes()) {
		t.Errorf("exit %d: %s", exit, out.String())
	}
	if exit := run("mode: of\n"); exit != exitFailure || !strings.Contains(errs.String(), "-: line 1: mode:") {
		t.Errorf("exit %d: %s", exit, errs.String())
	}
	diff = status.ConfigDiff{}
	if exit := run(""); exit != 0 || !strings.Contains(out.String(), "no key") {
		t.Errorf("exit %d: %s", exit, out.String())
	}
	diff = status.ConfigDiff{Problem: "it would move shop/db/main"}
	if exit := run(""); exit != exitFailure || !strings.Contains(errs.String(), "it would move") {
		t.Errorf("exit %d: %s", exit, errs.String())
	}
	if exit := run(strings.Repeat("#", 2<<20)); exit != exitFailure || !strings.Contains(errs.String(), "at most 1 MiB") {
		t.Errorf("exit %d: %s", exit, errs.String())
	}
}
