package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/decide/predict"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/engine/forecaststate"
	"github.com/sluice-dev/sluice/test/runtime"
)

// noticeFile is where a container finds its notices.
const noticeFile = "/run/sluice-notice/notice.json"

// noticed is the file of a container.
type noticed struct {
	Kind     string
	BeginsAt time.Time
	EndsAt   time.Time
	Why      string
}

// inside returns the path of a file as a container's process sees it.
func inside(t *testing.T, c *runtime.Container, name string) string {
	t.Helper()
	pids, err := c.PIDs()
	must(t, err)
	if len(pids) == 0 {
		t.Fatal("the container has no process")
	}
	return fmt.Sprintf("/proc/%d/%s", pids[0], name)
}

// reads returns the notice that a container finds.
func reads(t *testing.T, c *runtime.Container) (n noticed) {
	t.Helper()
	text, err := os.ReadFile(inside(t, c, "root"+noticeFile))
	must(t, err)
	must(t, json.Unmarshal(text, &n))
	return n
}

// testNotices: a container finds its notices, before and during a window and by a forecast, over
// restarts of the plugin and of the container, and cannot write to their folder, which is removed
// with the pod.
func testNotices(t *testing.T, rt *runtime.Runtime) {
	begin := time.Now().Add(7 * time.Minute).Truncate(time.Minute)
	window := fmt.Sprintf(`control: {mode: on, windows: [{from: "%s", to: "%s"}]}`, begin.Format("15:04"), begin.Add(time.Hour).Format("15:04"))
	s := loopSluice(t, rt, window)
	spec := classed("batch", "BE", runtime.Resources{})
	spec.Annotations["notice.sluice.dev"] = "file"
	pod := run(t, rt, spec)
	c := pod.Container("c")
	_, err := c.First()
	must(t, err)
	environment, err := os.ReadFile(inside(t, c, "environ"))
	must(t, err)
	if !slices.Contains(strings.Split(string(environment), "\x00"), "SLUICE_NOTICE="+noticeFile) {
		t.Errorf("the environment lacks the path of the file: %q", environment)
	}
	if err := os.WriteFile(inside(t, c, "root"+noticeFile+"x"), nil, 0o600); err == nil {
		t.Error("the folder can be written")
	}
	await(t, "the container finds the notice of the window", func() bool { return reads(t, c).Kind == "squeeze" })
	if n := reads(t, c); !n.BeginsAt.Equal(begin) || !n.EndsAt.Equal(begin.Add(time.Hour)) || !strings.HasPrefix(n.Why, "window ") {
		t.Errorf("%+v", n)
	}
	told, err := s.Explain("kube-system/batch")
	must(t, err)
	says(t, told, "notices", "squeeze from ")

	must(t, s.Kill())
	if n := reads(t, c); n.Kind != "squeeze" {
		t.Errorf("while the plugin is away: %+v", n)
	}
	must(t, s.Configure("control: {mode: on}"))
	must(t, s.Restart())
	await(t, "the notice is withdrawn", func() bool { return reads(t, c).Kind == "none" })
	must(t, c.Crash())
	c, err = pod.Create(spec.Containers[0])
	must(t, err)
	must(t, c.Start())
	must(t, c.Await(cri.ContainerState_CONTAINER_RUNNING))
	must(t, batchswitch.Write(s.StateDir, batchswitch.Setting{To: control.SwitchOff}))
	await(t, "the new container finds the notice of the switch", func() bool { return reads(t, c).Kind == "squeeze" })
	must(t, batchswitch.Write(s.StateDir, batchswitch.Setting{}))
	await(t, "the switch is open", func() bool { return reads(t, c).Kind == "none" })

	testNoticeOfForecast(t, rt, s, c)
	folder := filepath.Join(s.RuntimeDir, "notices", pod.UID)
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
	must(t, pod.Remove())
	await(t, "the pod's notices are gone", func() bool { _, err := os.Stat(folder); return os.IsNotExist(err) })
	sound(t, s)
}

// testNoticeOfForecast: a node that expects services to use all CPUs gives a notice and takes no
// batch work, until the forecasts count no longer.
func testNoticeOfForecast(t *testing.T, rt *runtime.Runtime, s *runtime.Sluice, c *runtime.Container) {
	t.Helper()
	must(t, s.Kill())
	learned := predict.NewSet(predict.DefaultConfig())
	now := time.Now()
	for before := 48 * time.Hour; before > 0; before -= time.Minute {
		learned.Add(now.Add(-before), predict.Key{Kind: predict.Node, Resource: predict.CPU}, float64(online(t).Size()))
	}
	must(t, forecaststate.Write(s.StateDir, learned.Encode()))
	must(t, s.Configure("control: {mode: on, prediction: {mode: on}}"))
	must(t, s.Restart())
	await(t, "the container finds the notice of the forecast", func() bool { return reads(t, c).Kind == "squeeze" })
	const why = "all others are expected to need "
	says(t, reads(t, c).Why, why)
	next, err := rt.RunPod(classed("next", "BE", runtime.Resources{}))
	must(t, err)
	if _, err := next.Create(runtime.ContainerSpec{Name: "c"}); err == nil {
		t.Error("a batch container was created in spite of the forecast")
	} else {
		says(t, err.Error(), "no batch work starts on this node now: ", why)
	}
	if given := decided(t, s, "notices", "give"); len(given) == 0 || given[len(given)-1].Cause != "forecast" {
		t.Errorf("sluice log has %+v", given)
	}
	must(t, s.Configure("control: {mode: on, prediction: {mode: on}, notices: {within: 0s}}"))
	must(t, s.Signal(syscall.SIGHUP))
	await(t, "the notice is withdrawn", func() bool { return reads(t, c).Kind == "none" })
	_, err = next.Create(runtime.ContainerSpec{Name: "c"})
	must(t, err)
}
