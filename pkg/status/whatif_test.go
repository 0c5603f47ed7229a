package status

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/cpuset"
	"github.com/sluice-dev/sluice/topology/synth"
)

func TestWhatIf(t *testing.T) {
	t.Parallel()
	machine, err := synth.Machine("8 cores")
	if err != nil {
		t.Fatal(err)
	}
	pod := &workload.Pod{UID: "u", Namespace: "n", Name: "p"}
	asks := map[string]workload.Request{
		"early": {Class: workload.LS},
		"init":  {Class: workload.LSR, CPUs: 6, Milli: 6000},
		"main":  {Class: workload.LSR, CPUs: 6, Milli: 6000},
		"more":  {Class: workload.LSR, CPUs: 2, Milli: 2000},
	}
	ask := func(c *workload.Container) (workload.Request, []string, error) {
		r, ok := asks[c.Name]
		if !ok {
			return workload.Request{Class: workload.BE}, []string{"a warning"}, errors.New("not that one")
		}
		return r, nil, nil
	}
	containers := []workload.Container{{Name: "early"}, {Name: "init", State: workload.Stopped}, {Name: "main"}, {Name: "more"}, {Name: "bad"}}
	ledger := placement.New(placement.Default(), machine)
	answers := WhatIf(ledger, pod, containers, ask, time.Unix(0, 0))

	early, first, main, more, bad := answers[0], answers[1], answers[2], answers[3], answers[4]
	if first.CPUs.Size() != 6 || main.CPUs != first.CPUs || !main.Unlimited || main.Problem != "" {
		t.Errorf("an init container's CPUs are free for the next: %+v, %+v", first, main)
	}
	if early.CPUs != cpuset.Difference(machine.Online, main.CPUs) || early.Ref != "n/p/early" || early.Why == "" {
		t.Errorf("a pin that comes later takes CPUs away: %+v", early)
	}
	if more.Problem == "" || !more.CPUs.IsEmpty() || more.Class != workload.LSR {
		t.Errorf("a pin must leave a core to the pools: %+v", more)
	}
	if bad.Problem != "not that one" || bad.Class != workload.BE || len(bad.Warnings) != 1 {
		t.Errorf("%+v", bad)
	}
	if n := len(ledger.Holders()); n != 2 {
		t.Errorf("%d containers are in the ledger, early and main are expected", n)
	}
}
