package nri

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/engine/agent"
)

// TestTimeout: the runtime's deadline for a request reaches the agent, which undoes the creation
// that it could not answer in time, and does not begin another one that waited behind it.
func TestTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := listen(t, dir)
	var stalled sync.Mutex // held while the agent's clock stands, and with it the event that asks for the time
	log, logged := test.NewNullLogger()
	a := pluginOf(t, filepath.Join(dir, "runtime.sock"), agent.Options{Log: log, Clock: func() time.Time {
		stalled.Lock()
		defer stalled.Unlock()
		return time.Now()
	}})
	var cpus string
	create := func(id string) {
		request := pin()
		request.Container.Id = id
		reply, err := r.CreateContainer(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		cpus = reply.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus()
	}
	wait(t, "an adjustment", func() bool { create("early"); return cpus != "" })
	stalled.Lock()
	create("late")          // 2 s, the runtime's deadline
	time.Sleep(time.Second) // the plugin's deadline is later by the time that the request took to arrive
	stalled.Unlock()
	if cpus != "" {
		t.Errorf("the runtime has waited for an answer: %s", cpus)
	}
	told := func() (n int) {
		for _, e := range logged.AllEntries() {
			if e.Data["event"] == "CreateContainer" && e.Data["container"] == "default/db/c" {
				n++
			}
		}
		return n
	}
	wait(t, "the end of the late event", func() bool { return told() == 1 })
	wait(t, "another connection", func() bool { create("early"); return cpus == "0-1" })
	if s, err := a.Status(); err != nil || len(s.Containers) != 1 {
		t.Errorf("%d containers, want the early one: %v", len(s.Containers), err)
	}
}
