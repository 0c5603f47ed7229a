package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/kube/bed"
	"github.com/sluice-dev/sluice/test/kube/standin"
	"github.com/sluice-dev/sluice/test/probe/wire"
)

const (
	calm  = 20 * time.Second // measured before and after the outage, with the same load
	step  = 5 * time.Second  // of the service's load
	probe = "localhost/sluice/probe:1"
)

// outage is how long the API server is away: what the variable SLUICE_OUTAGE says, as "5m".
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SLUICE_OUTAGE")
	if text == "" {
		t.Skip("SKIPPED: it takes two minutes more than SLUICE_OUTAGE, which is not set")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SLUICE_OUTAGE: %v", err)
	}
	return length
}

// TestOutage freezes the API server and then ends it, while a service's load steps beside batch work. The node goes on
// squeezing batch work, the service is as fast as before, and sluice-kube publishes once at the API server's return.
func TestOutage(t *testing.T) {
	length := outage(t)
	audit, flags := audited(t, `{level: Metadata, verbs: [patch], users: ["system:serviceaccount:sluice:sluice-kube"], resources: [{group: "", resources: [nodes/status]}]}`)
	c := bed.API(t, flags...)
	s := &stand{T: t, cluster: c, client: c.Client(t), node: c.Node(t, nodeName)}
	s.kubeconfig = c.Kubeconfig(t, "sluice", c.Agent(t, nodeName, bed.AgentRules))
	s.node.ImportPrograms(t, probe, "../../../bin/tools/probe")
	socket := s.act()
	client, work := s.workloads()
	defer client.Close()
	s.program = standin.Run(t, nodeName, s.kubeconfig, socket)
	s.becomes("True Selling")

	whole := calm + length + calm + 10*time.Second // in which the API server starts
	busy := capacity(t, client, work)
	due := load.Schedule(load.Steps(busy/10, busy/2, step, whole), 1)
	begin := load.Now()
	var result *load.Result
	var failed error
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		result, failed = client.Run(load.Load{Begin: begin, Due: due, Request: wire.Request{Rounds: work}, Patience: 10 * time.Second})
	}()
	passed := func() time.Duration { return time.Duration(load.Now() - begin) }
	time.Sleep(calm - passed())

	c.APIServer.Freeze(t)
	quotas := s.quotas(passed, calm+length/2)
	c.APIServer.Kill(t)
	quotas = append(quotas, s.quotas(passed, calm+length)...)
	s.node.Run(t, s.sluice(), "batch", "off")
	started := time.Now()
	c.APIServer.Start(t)
	back, serves := passed(), time.Now()
	s.becomes("False Switch")
	took := time.Since(serves)
	time.Sleep(10 * time.Second)
	t.Logf("the switch was on the node %v after the API server's return, and its outage took %v", took.Round(100*time.Millisecond), (back - calm).Round(time.Second))
	if n := patches(t, audit, started); n != 1 {
		t.Errorf("there were %d publications at the API server's return, want 1", n)
	}
	<-loaded
	if failed != nil {
		t.Fatal(failed)
	}
	s.compare(due, result, back)
	s.squeezed(quotas)
}

func (s *stand) sluice() string {
	s.Helper()
	path, err := filepath.Abs("../../../bin/sluice")
	if err != nil {
		s.Fatal(err)
	}
	return path
}

// act runs the real plugin on the node, and returns its socket for sluice-kube once it knows its offer.
func (s *stand) act() (socket string) {
	s.Helper()
	config := s.node.Path("/run/sluice.yaml")
	if err := os.WriteFile(config, []byte("mode: on\ncontrol: {mode: on}\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	s.node.Run(s, "mkdir", "-m", "700", "/run/sluice-kube")
	s.node.Program(s, s.sluice(), "run", "--config", "/run/sluice.yaml", "--kube-socket", "/run/sluice-kube/kube.sock", "--kube-uid", "0")
	own := statusapi.NewClient(s.node.Path("/run/sluice/status.sock"))
	bed.Await(s, "the plugin to know its offer", func() error {
		now, err := own.Status()
		if err == nil && (now.Loop == nil || !now.Loop.Offer.Known) {
			err = bed.ErrNotYet
		}
		return err
	})
	return s.node.Path("/run/sluice-kube/kube.sock")
}

// workloads starts a service and batch work that takes every CPU. It returns a client of the service, and the rounds of
// work that a request of a millisecond has.
func (s *stand) workloads() (client *load.Client, rounds uint32) {
	s.Helper()
	address := filepath.Base(s.cluster.Dir) // beds beside each other have their own
	s.cluster.Apply(s, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: service}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: %q, command: [probe, serve=2], env: [{name: POD_CGROUP, value: %q}], resources: {requests: {cpu: 500m}}}
---
apiVersion: v1
kind: Pod
metadata: {name: batch, annotations: {class.sluice.dev: BE}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %[1]q, command: [probe, burn=2]}]
`, probe, address))
	s.cluster.AwaitReady(s, "default", "service")
	s.cluster.AwaitReady(s, "default", "batch")
	bed.Await(s, "the service to answer", func() error {
		var err error
		client, err = load.Dial(address)
		return err
	})
	rounds, err := client.Calibrate(time.Millisecond)
	if err != nil {
		s.Fatal(err)
	}
	return client, rounds
}

// capacity is how many such requests the service answers in a second, one after the other. Half of that is a high load
// also for a service on a machine that has other work.
func capacity(t *testing.T, client *load.Client, rounds uint32) float64 {
	t.Helper()
	n := 0
	began := time.Now()
	for ; time.Since(began) < 3*time.Second; n++ {
		if _, err := client.Ask(wire.Request{Rounds: rounds}); err != nil {
			t.Fatal(err)
		}
	}
	return float64(n) / time.Since(began).Seconds()
}

// becomes waits until SluiceBatchOpen is so.
func (s *stand) becomes(open string) {
	s.Helper()
	bed.Await(s, open, func() error {
		_, err := s.says(open)
		return err
	})
}

// quota is what all batch work may use of a period, at a time since the load's begin.
type quota struct {
	at    time.Duration
	share float64 // in CPUs
}

// quotas reads the quota of batch work again and again until that time.
func (s *stand) quotas(passed func() time.Duration, until time.Duration) (all []quota) {
	s.Helper()
	cgroup := filepath.Join(s.node.CgroupRoot, "kubepods", "besteffort")
	for ; passed() < until; time.Sleep(50 * time.Millisecond) {
		var text, period string
		if s.node.V2() {
			text, period, _ = strings.Cut(s.node.CgroupFile(s, cgroup, "cpu.max"), " ")
		} else {
			text, period = s.node.CgroupFile(s, cgroup, "cpu.cfs_quota_us"), s.node.CgroupFile(s, cgroup, "cpu.cfs_period_us")
		}
		value, err := strconv.ParseFloat(text, 64)
		of, wrong := strconv.ParseFloat(period, 64)
		if err != nil || wrong != nil || value <= 0 {
			s.Fatalf("batch work has the quota %q of %q: nobody squeezes it", text, period)
		}
		all = append(all, quota{passed(), value / of})
	}
	return all
}

// squeezed checks that batch work had less while the service's load was high, or next to nothing all the time, because
// the machine has other work.
func (s *stand) squeezed(quotas []quota) {
	s.Helper()
	var while [2]float64 // sums of quotas while the load is low, and high
	var n [2]float64
	most := 0.0
	for _, q := range quotas {
		most = max(most, q.share)
		if q.at%step > step/2 { // the loop has had the time to follow
			i := q.at / step % 2
			while[i] += q.share
			n[i]++
		}
	}
	low, high := while[0]/n[0], while[1]/n[1]
	s.Logf("without an API server batch work has %.2f CPUs on average while the load is low, %.2f while it is high, and %.2f at most", low, high, most)
	if little := 0.15 * float64(runtime.NumCPU()); high >= low && most > little { // the floor is 10 % of the CPUs
		s.Error("batch work is not squeezed")
	}
}

// compare checks that the service was as fast during the outage, which ended at that time, as before and after it.
func (s *stand) compare(due []time.Duration, result *load.Result, back time.Duration) {
	s.Helper()
	var before, during, after []time.Duration
	for i, at := range due {
		switch {
		case at < calm:
			before = append(before, result.Latency[i])
		case at < back:
			during = append(during, result.Latency[i])
		default:
			after = append(after, result.Latency[i])
		}
	}
	p99 := [3]time.Duration{load.Quantile(before, 0.99), load.Quantile(during, 0.99), load.Quantile(after, 0.99)}
	s.Logf("the service's p99 is %v before the outage, %v meanwhile, %v after it; its median is %v, %v, %v; %d answers are missing",
		p99[0], p99[1], p99[2], load.Quantile(before, 0.5), load.Quantile(during, 0.5), load.Quantile(after, 0.5), result.Lost)
	if most := 3*max(p99[0], p99[2]) + 5*time.Millisecond; p99[1] > most {
		s.Errorf("the service's p99 is %v while the API server is away, want at most %v", p99[1], most)
	}
}
