package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology/synth"
)

// BenchmarkDecision measures the agent without NRI: create, start and stop of a container that
// shares CPUs.
func BenchmarkDecision(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("cpus=%d/containers=%d", size.cpus, size.containers), func(b *testing.B) {
			a := newAgent(b, size.machine, size.containers)
			pod := podNumber(size.containers)
			var took []time.Duration
			for b.Loop() {
				c := containerNumber(size.containers)
				began := time.Now()
				if _, _, err := a.CreateContainer(context.Background(), pod, c); err != nil {
					b.Fatal(err)
				}
				created := time.Now()
				if err := a.StartContainer(context.Background(), pod, c); err != nil {
					b.Fatal(err)
				}
				started := time.Now()
				if _, err := a.StopContainer(context.Background(), c.ID); err != nil {
					b.Fatal(err)
				}
				took = append(took, created.Sub(began), started.Sub(created), time.Since(started))
			}
			slices.Sort(took)
			b.ReportMetric(float64(quantile(took, 50).Nanoseconds())/1000, "p50-µs")
			b.ReportMetric(float64(quantile(took, 99).Nanoseconds())/1000, "p99-µs")
			b.ReportAllocs()
		})
	}
}

func newAgent(b *testing.B, machine string, containers int) *agent.Agent {
	m, err := synth.Machine(machine)
	if err != nil {
		b.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	a := agent.New(agent.Options{Config: config.Default(), Machine: m, Host: fstest.MapFS{"proc/1/comm": {Data: []byte("init\n")}}, Log: log})
	go a.Run(b.Context())
	var pods []*workload.Pod
	var specs []workload.Container
	for i := range containers {
		pods = append(pods, podNumber(i))
		c := containerNumber(i)
		c.State = workload.Running
		specs = append(specs, c)
	}
	if _, err := a.Synchronize(context.Background(), pods, specs); err != nil {
		b.Fatal(err)
	}
	return a
}

func podNumber(i int) *workload.Pod {
	uid := fmt.Sprintf("uid-%d", i)
	return &workload.Pod{ID: "pod-" + uid, UID: uid, Namespace: "default", Name: uid, CgroupParent: "/kubepods/burstable/pod" + uid}
}

func containerNumber(i int) workload.Container {
	pod := podNumber(i)
	return workload.Container{
		ID: fmt.Sprintf("%064d", i), PodID: pod.ID, Name: "c", CgroupsPath: pod.CgroupParent + "/" + fmt.Sprintf("%064d", i),
		Resources: workload.Resources{Shares: 102}, OOMScoreAdj: 990, CreatedNanos: int64(i),
	}
}
