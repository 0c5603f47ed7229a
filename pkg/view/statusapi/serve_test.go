package statusapi

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/placement"
	"github.com/sluice-dev/sluice/pkg/peers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

type source struct{ status *status.Status }

func (s source) Status() (*status.Status, error)     { return s.status, nil }
func (s source) Machine() (*topology.Machine, error) { return nil, nil }
func (s source) WhatIf(*workload.Pod, []workload.Container) ([]status.Answer, error) {
	return nil, nil
}

// The client receives exactly the status that the plugin sends.
func TestStatusOverTheSocket(t *testing.T) {
	t.Parallel()
	told := &status.Status{
		Version: "1", Time: time.Unix(1, 0).UTC(), Mode: "on",
		Runtime: status.Runtime{Connected: true, ChangedAt: time.Unix(2, 0).UTC(), RecordUpdates: status.RecordUpdatesOn},
		Machine: status.Machine{Online: cpuset.Range(0, 3), Pinned: cpuset.Of(1, 2)},
		Pools:   []status.Pool{{Name: "online", CPUs: cpuset.Of(0, 3), Containers: 1, Requested: 500}},
		Containers: []status.Container{
			{ID: "a", Class: workload.LSE, State: placement.Held, CPUs: cpuset.Of(1), Keys: []workload.RequestKey{{Key: "class", Value: "LSE", Source: "annotation"}}},
			{ID: "b", Class: workload.LSR, State: placement.Reserved, CPUs: cpuset.Of(2), Unlimited: true},
		},
		Neighbours: []peers.Neighbour{{Kind: peers.CPUManager, Pins: []peers.Pin{{Container: "c", CPUs: cpuset.Of(3)}}}},
		Counters:   status.Counters{Placed: 2},
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	socket := filepath.Join(t.TempDir(), "run", "status.sock")
	go func() { served <- Serve(ctx, socket, source{told}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	client := NewClient(socket)
	var read *status.Status
	var err error
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if read, err = client.Status(); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, told) {
		t.Errorf("told %+v, read %+v", told, read)
	}
}
