package agent

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/colocation"
	"github.com/sluice-dev/sluice/pkg/engine/failsafe"
	"github.com/sluice-dev/sluice/pkg/engine/hostoffers"
	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
)

const yarn = "/hadoop-yarn"

// besideYARN returns a configuration with YARN as host application, which reads that file.
func besideYARN(file string) string {
	return "control: {mode: on, batch: {by: quota, thresholdPercent: 65}, offer: {cpuMarginPercent: 35, memoryMarginPercent: 0}, " +
		"hostApplications: [{name: yarn, cgroup: " + yarn + ", cpu: 4, offerPercent: 50, file: \"" + file + "\"}]}\n"
}

// usesOf lets YARN use that many CPUs.
func (h *loopNode) usesOf(cpus float64) { h.uses[yarn], h.system = cpus, cpus }

func (h *loopNode) loopStatus() *status.Loop {
	h.t.Helper()
	h.agent.loop.Failures = func() []status.Failure { return nil } // there is a sampler
	s, err := h.agent.Status()
	if err != nil || len(s.Loop.HostApplications) != 1 {
		h.t.Fatal(s, err)
	}
	return s.Loop
}

func (h *loopNode) yarn() status.HostApplication { return h.loopStatus().HostApplications[0] }

// offered returns what the file says; the zero value if there is none.
func offered(t *testing.T, file string) (c hostoffers.Content) {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return c
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A host application is bounded and weighed like batch pods from when its cgroup appears, over a
// restart, until the configuration has it no longer. Its use is batch work's, and not the system's.
func TestHostApplication(t *testing.T) {
	config := besideYARN("")
	onLoops(t, knobSetup{config: config}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 6000), granted("big/c"))
		h.uses["web/c"], h.uses["big/c"] = 1, 2
		h.steps(4 * time.Second)
		h.expectQuota(bestBox, 4.2)
		if app := h.yarn(); !strings.Contains(app.Problem, "does not exist") {
			t.Errorf("%+v", app)
		}
		h.Mkdir(yarn)
		before := h.untouched()
		h.usesOf(4)
		h.steps(4 * time.Second)
		h.expectShares()
		if differences(before, h.untouched()) == "" {
			t.Errorf("its priority is as before: %v", before)
		}
		if app := h.yarn(); app.Problem != "" || app.Used.CPU != 4000 || float64(app.Quota)/1000 != h.quotaOf(yarn) {
			t.Errorf("%+v", app)
		}

		h.uses["web/c"] = 3.2 // takes it off both at once
		h.steps(100 * time.Millisecond)
		if sum := h.quotaOf(yarn) + h.quotaOf(bestBox); sum < 1.98 || sum > 2.02 {
			t.Errorf("%v CPUs together", sum)
		}
		h.uses["web/c"] = 1
		h.restart(h.text)
		if sum := h.quotaOf(yarn) + h.quotaOf(bestBox); sum < 1.98 || sum > 2.02 {
			t.Errorf("after a restart, %v CPUs together", sum)
		}
		h.steps(30 * time.Second)
		h.expectShares()

		h.usesOf(0)
		h.Rmdir(yarn)
		h.steps(3 * time.Second)
		h.expectQuota(bestBox, 4.2)
		h.Mkdir(yarn)
		h.usesOf(4)
		h.steps(10 * time.Second)
		h.expectShares()
		if err := h.reload(byQuota); err != nil {
			t.Fatal(err)
		}
		h.usesOf(0)
		h.steps(10 * time.Second)
		if diff := differences(before, h.untouched()); diff != "" || h.quotaOf(yarn) != -1 {
			t.Errorf("it keeps %v CPUs and %s", h.quotaOf(yarn), diff)
		}
		if err := h.reload(config); err != nil {
			t.Fatal(err)
		}
		h.steps(time.Second)
		h.giveBack(func(h *knobNode) {
			h.run(service("web/c", 6000), granted("big/c"))
			h.Mkdir(yarn)
		})
	})
}

// expectShares checks that the budget of 4.2 CPUs, or a change of 1 % of the node less, is divided by weight: 4 to
// YARN, 2 to the pod.
func (h *loopNode) expectShares() {
	h.t.Helper()
	app, pods := h.quotaOf(yarn), h.quotaOf(bestBox)
	if sum := app + pods; sum < 4.08 || sum > 4.21 || app/pods < 1.98 || app/pods > 2.02 {
		h.t.Errorf("YARN has %v CPUs, and the pod %v", app, pods)
	}
}

// untouched returns the files of YARN's cgroup but those of its quota and of its memory limit.
func (h *loopNode) untouched() map[string]string {
	synctest.Wait()
	files := h.Dump()
	maps.DeleteFunc(files, func(file, _ string) bool {
		return !strings.Contains(file, yarn+"/") || strings.Contains(file, "cfs_quota") || strings.Contains(file, "cpu.max") ||
			strings.Contains(file, "memory.max") || strings.Contains(file, "limit_in_bytes")
	})
	return files
}

// What a host application may use is told in YARN's units, is not offered to pods, and does not count
// as used by others.
func TestHostApplicationOffer(t *testing.T) {
	for _, f := range mainlines() {
		t.Run(f.Name, func(t *testing.T) { testHostOffer(t, f, filepath.Join(t.TempDir(), "offers", "yarn.json")) })
	}
}

func testHostOffer(t *testing.T, f fakekernel.Flavour, file string) {
	t.Helper()
	config := besideYARN(file)
	onLoop(t, f, knobSetup{config: config}, func(t *testing.T, h *loopNode) {
		h.Mkdir(yarn)
		h.run(service("web/c", 6000))
		h.uses["web/c"] = 1
		h.usesOf(2)
		h.holds[yarn] = 1 << 30 // of which one half is page cache
		h.memory.Available = 6<<30 + 512<<20
		h.steps(12 * time.Minute)
		// 65 % of 8 CPUs, less 1, and 8 GiB, less 1 GiB: half of each.
		want := hostoffers.Content{VCores: 2, MemoryMB: 3584, ValidUntil: offered(t, file).ValidUntil}
		if got := offered(t, file); got != want && got.MemoryMB != want.MemoryMB-1 || time.Until(got.ValidUntil) < hostoffers.Valid*3/4 {
			t.Errorf("%+v at %v", got, time.Now())
		}
		if o := h.loopStatus().Offer; o.ShortTerm.CPU != 2100 || int(o.ShortTerm.MemoryBytes>>20) != want.MemoryMB-1 && int(o.ShortTerm.MemoryBytes>>20) != want.MemoryMB {
			t.Errorf("pods are offered %+v", o)
		}
		if h.yarn().MemoryLimitBytes == 0 {
			t.Error("its memory is not limited")
		}
		h.usesOf(3.5) // more than its part: pods are not offered what it uses
		h.steps(6 * time.Minute)
		if o := h.loopStatus().Offer; o.ShortTerm.CPU != 700 {
			t.Errorf("pods are offered %+v", o)
		}
		if err := h.reload(strings.Replace(config, "mode: on", "mode: preview", 1)); err != nil {
			t.Fatal(err)
		}
		h.steps(2 * time.Second)
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("a loop that does not act has a file: %v", err)
		}
	})
}

// A cgroup that holds pods is not taken for a host application.
func TestHostApplicationWithPods(t *testing.T) {
	onLoop(t, fakekernel.MainlineV2(), knobSetup{config: besideYARN("")}, func(t *testing.T, h *loopNode) {
		h.Mkdir(yarn)
		h.steps(2 * time.Second)
		if app := h.yarn(); app.Problem != "" || h.get(yarn, "cpu.idle") != "1" {
			t.Errorf("%+v, cpu.idle %s", app, h.get(yarn, "cpu.idle"))
		}
		h.run(service("web/c", 1000))
		h.pods["web"].CgroupParent = yarn + "/pod-web"
		h.agent.Order[0].PodPath = yarn + "/pod-web"
		h.steps(2 * time.Second)
		if app := h.yarn(); !strings.HasSuffix(app.Problem, "ns/web") || h.get(yarn, "cpu.idle") != "0" {
			t.Errorf("%+v, cpu.idle %s", app, h.get(yarn, "cpu.idle"))
		}
	})
}

// Neither the loop nor the failsafe gives an application more CPU than its own limit, such as CPUQuota of
// its unit.
func TestHostApplicationsOwnLimit(t *testing.T) {
	onLoops(t, knobSetup{config: besideYARN("")}, func(t *testing.T, h *loopNode) {
		h.Mkdir(yarn)
		own := []knobs.Change{{Object: knobs.Object{Path: yarn}, Knob: knobs.Quota, To: colocation.Quota(200)}}
		if err := h.spy.Apply(own); err != nil {
			t.Fatal(err)
		}
		h.run(service("web/c", 1000))
		h.usesOf(0.2)
		h.steps(5 * time.Second)
		h.expectQuota(yarn, 0.2)
		h.sleep(failsafe.Silence)
		h.life.act(h)
		if got := h.quotaOf(yarn); got > 0.2 {
			t.Errorf("the failsafe gives it %v CPUs", got)
		}
	})
}

// The file offers nothing while the application is not managed.
func TestHostApplicationThatIsNotThere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "offers", "yarn.json")
	onLoop(t, fakekernel.MainlineV2(), knobSetup{config: besideYARN(file)}, func(t *testing.T, h *loopNode) {
		h.run(service("web/c", 6000))
		h.uses["web/c"] = 1
		h.memory.Available = 6 << 30
		h.steps(12 * time.Minute)
		if got := offered(t, file); got.VCores != 0 || got.MemoryMB != 0 || !strings.Contains(got.Why, "does not exist") {
			t.Errorf("without its cgroup: %+v", got)
		}
		h.Mkdir(yarn)
		h.steps(2 * time.Second)
		if got := offered(t, file); got.VCores != 2 || got.Why != "" {
			t.Errorf("with its cgroup: %+v", got)
		}
	})
}

// While the limit of all pods binds, the memory of an application outside of it neither counts against
// that of batch pods nor is limited by it.
func TestHostApplicationBesideThePodsLimit(t *testing.T) {
	config := "defaults: {besteffort: BE}\n" + memoryOn + "\n"
	onBothLoops(t, knobSetup{config: strings.Replace(config, "control: {", "control: {hostApplications: [{name: yarn, cgroup: "+yarn+"}], ", 1)}, func(t *testing.T, h *loopNode) {
		h.Mkdir(yarn)
		h.limitPods(4 << 30)
		h.run(service("web/c", 2000))
		h.holds["web/c"] = 256 << 20
		h.steps(3 * time.Second)
		alone := h.limit()
		h.holds[yarn] = 3 << 30
		h.steps(3 * time.Second)
		if got := h.limit(); got < alone-64<<20 {
			t.Errorf("batch pods may have %v, and %v without the application", got, alone)
		}
		if got := h.limitOn(yarn); got > 0 {
			t.Errorf("the application may have %v", got)
		}
	})
}
