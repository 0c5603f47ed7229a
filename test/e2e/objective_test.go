package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	openloop "github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/probe/wire"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testObjective runs a service beside batch work that does not yield. Batch work breaks the service's
// latency objective, because its weight leaves the service less than its requests need, until it has
// less CPU; then it has all CPU again, because the service ends.
func testObjective(t *testing.T, rt *runtime.Runtime) {
	const bound = 100 * time.Millisecond
	s := loopSluice(t, rt, "control: {mode: on, batch: {by: quota, thresholdPercent: 100, growPercent: 100, floorCPUs: 1, onlineWeight: 100}}\n"+
		"classes: {BE: {cpu-identity: 0}}\nauthorize: [{features: [slo], namespaces: [kube-system]}]")
	service, client := serveMeasured(t, rt, bound)
	const work = 5 * time.Millisecond // CPU time of a request
	rounds, err := client.Calibrate(work)
	must(t, err)
	for _, name := range []string{"batch-0", "batch-1"} {
		spec := classed(name, "BE", runtime.Resources{CPURequest: 1000})
		spec.Containers[0].Args = []string{"first", "burn=2"}
		run(t, rt, spec)
	}
	now := func() (o control.Objective, batch status.Batch) {
		st := statusOf(t, s)
		for _, d := range st.Loop.Disturbed {
			if d.Objective != nil {
				o = *d.Objective
			}
		}
		return o, st.Loop.Batch
	}
	// A service that came first would have what it needs, and batch work what that leaves.
	await(t, "batch work uses nearly all CPUs", func() bool { _, b := now(); return b.Used > 1700 })
	const needs = 0.6 // CPUs; by weight it is due 0.4 of two
	due := openloop.Schedule([]openloop.Phase{{Rate: needs / work.Seconds(), For: 3 * patience()}}, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := client.Run(openloop.Load{Begin: openloop.Now(), Due: due, Request: wire.Request{Rounds: rounds}})
		ended <- err
	}()

	await(t, "a broken objective squeezes batch work", func() bool { _, b := now(); return b.BoundsPercent > 0 })
	broken, squeezed := now()
	t.Logf("its p99 is %.0f ms: %s", 1000*broken.Seconds, squeezed.BoundsWhy)
	if !strings.Contains(squeezed.BoundsWhy, "/web answers") || !strings.Contains(squeezed.BoundsWhy, "its objective is 100 ms") || broken.Metric != wire.Durations || broken.BoundSeconds != bound.Seconds() {
		t.Errorf("why: %q; the objective: %+v", squeezed.BoundsWhy, broken)
	}
	await(t, "the objective is held", func() bool { o, _ := now(); return o.Measured && o.Seconds < bound.Seconds() })
	held, squeezed := now()
	t.Logf("its p99 is %.0f ms while batch work has %d %% of its budget, %d of %d thousandths", 1000*held.Seconds, squeezed.BoundsPercent, squeezed.Used, squeezed.Budget)
	client.Interrupt()
	if err := <-ended; err == nil {
		t.Error("the load had ended before the objective was held")
	}
	must(t, client.Close())
	must(t, service.Remove())
	began := time.Now()
	await(t, "batch work has more again", func() bool { _, b := now(); return b.BoundsPercent == 0 || b.BoundsPercent > squeezed.BoundsPercent })
	t.Logf("batch work had more %v after the service had gone", time.Since(began).Round(time.Second))
	sound(t, s)
}

// serveMeasured runs a service that names an objective for its p99, and connects to it.
func serveMeasured(t *testing.T, rt *runtime.Runtime, bound time.Duration) (*runtime.Pod, *openloop.Client) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // pods have the host's network
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	web := classed("web", "LS", runtime.Resources{CPURequest: 500})
	web.Annotations["slo.sluice.dev"] = fmt.Sprintf(`{latency: {metric: %s, bound: %s, port: %d, labels: {code: "200"}}}`, wire.Durations, bound, port)
	web.Containers[0].Args = []string{"first", fmt.Sprintf("metrics=%d", port), "serve=4"}
	service := run(t, rt, web)
	var client *openloop.Client
	await(t, "the service listens", func() bool {
		client, err = openloop.Dial(service.Cgroup)
		return err == nil
	})
	return service, client
}
