package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/engine/hostoffers"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/test/runtime"
)

// testHostApplication runs work outside of pods beside a batch pod. Both divide the budget by weight,
// give way to a service together, and are as before when Sluice is gone.
func testHostApplication(t *testing.T, rt *runtime.Runtime) {
	app, err := rt.RunHostApplication("yarn", 2)
	must(t, err)
	t.Cleanup(func() { must(t, app.Remove()) })
	online := service(t, rt, "online", runtime.Resources{CPURequest: 1000, CPULimit: 2000})
	batch := hog(t, rt, "batch")
	before, err := rt.Dump()
	must(t, err)
	file := filepath.Join(t.TempDir(), "offers", "yarn.json")
	// A pod without a grant weighs as much as 0.1 CPU.
	s := loopSluice(t, rt, fmt.Sprintf("control: {mode: on, batch: {by: quota, thresholdPercent: 60, growPercent: 100, onlineWeight: 100}, "+
		"hostApplications: [{name: yarn, cgroup: %s, cpu: 300m, offerPercent: 50, file: %s}]}", app.Cgroup, file))

	both := func() (all, host workload.MilliCPU) {
		host, pods := limit(t, app.File), boxed(t, batch)
		if host < 0 || pods < 0 {
			return -1, host
		}
		return host + pods, host
	}
	isCalm := func() bool {
		all, host := both()
		return all > 1050 && all <= 1205 && host > all*7/10 && host < all*8/10
	}
	await(t, "both divide what a calm service leaves by weight", isCalm)
	if identity, err := app.File("cpu.idle"); err == nil && identity != "1" {
		t.Errorf("its cgroup has cpu.idle %s", identity)
	}
	used := func() (host, pod time.Duration) {
		host, err := app.CPUTime()
		must(t, err)
		pod, err = batch.Container("c").CPUTime()
		must(t, err)
		return host, pod
	}
	host, pod := used()
	time.Sleep(weighed)
	hostThen, podThen := used()
	ratio := float64(hostThen-host) / float64(podThen-pod)
	t.Logf("it used %.2f times the CPU time of the pod", ratio)
	if ratio < 2 || ratio > 4 {
		t.Errorf("it used %.2f times the CPU time of the pod, and is due 3 times", ratio)
	}

	load(t, online)
	await(t, "both give way", func() bool {
		all, _ := both()
		return all > 0 && all <= 900
	})
	unload(t, online)
	await(t, "both have back what the service leaves", isCalm)

	var offer hostoffers.Content
	await(t, "it is told what it may use", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &offer) == nil && offer.MemoryMB > 0 && time.Now().Before(offer.ValidUntil)
	})
	told := statusOf(t, s).Loop.HostApplications
	if len(told) != 1 || told[0].Problem != "" || told[0].Used.CPU == 0 || told[0].MemoryLimitBytes == 0 {
		t.Errorf("sluice status tells %+v", told)
	}
	sound(t, s)
	restores(t, rt, s, before)
}
