package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
)

// The fleet's switch is in force after a restart of the plugin although nobody says it again.
func TestFleetSwitchOutlivesARestart(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "daemon") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	host := filepath.Join(root, "host")
	machine(t, host)
	cfg := config.Default()
	cfg.Log.File = filepath.Join(root, "log")
	o := Options{HostRoot: host, StateDir: filepath.Join(root, "state"), StatusSocket: filepath.Join(root, "s"), KubeSocket: filepath.Join(root, "k")}
	off := status.Switch{State: control.SwitchOff, EndsAt: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, says := range []bool{true, false} {
		s := service{Options: &o}
		a, _, err := s.start(cfg, configured("", nil))
		if err != nil {
			t.Fatal(err)
		}
		if says {
			await(t, func() error { return kubesocket.NewClient(o.KubeSocket).SetSwitch(t.Context(), off) })
		}
		await(t, func() error {
			now, err := a.Status()
			if err == nil && (now.Loop == nil || now.Loop.Batch.FleetSwitch == nil || *now.Loop.Batch.FleetSwitch != off) {
				err = fmt.Errorf("the status has the loop %+v", now.Loop)
			}
			return err
		})
		s.stop()
	}
}

// await repeats a try until it succeeds.
func await(t *testing.T, try func() error) {
	t.Helper()
	err := try()
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = try() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
}
