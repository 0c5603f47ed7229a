package agent

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/iocost"
)

// drives holds a node's disks.
type drives struct {
	mu  sync.Mutex
	all []iocost.Disk
	now map[string]iocost.QoS
}

func oneDrive() *drives {
	return &drives{all: []iocost.Disk{{Name: "nvme0n1", Number: "259:0"}}, now: map[string]iocost.QoS{}}
}

func (d *drives) Read() (map[string]iocost.QoS, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.now), nil
}

func (d *drives) Disks() ([]iocost.Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all, nil
}

func (d *drives) Write(w iocost.Write) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now[w.Number] = w.To
	return nil
}

func (d *drives) expect(t *testing.T, enabled int) {
	t.Helper()
	got := 0
	now, _ := d.Read()
	for _, q := range now {
		if q.Enabled {
			got++
		}
	}
	if got != enabled {
		t.Errorf("io.cost is enabled on %d disks, should be on %d: %+v", got, enabled, now)
	}
}

func ioCost(c *config.Config) { c.IOCost.Mode = config.IOCostOn }

func TestDisks(t *testing.T) {
	d := oneDrive()
	inBubble(t, setup{config: ioCost, disks: d}, func(t *testing.T, n *testNode) {
		n.sleep(time.Second)
		d.expect(t, 1)
		weighs := func(want ...string) {
			t.Helper()
			err := n.agent.events.Do("look", func() error {
				if got := n.agent.QoS.CostDisks; !slices.Equal(got, want) {
					t.Errorf("weights of %q are in io.weight, want %q", got, want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		weighs("259:0")
		d.mu.Lock()
		d.all = append(d.all, iocost.Disk{Name: "sda", Number: "8:0"})
		d.mu.Unlock()
		n.sleep(time.Minute)
		d.expect(t, 2)
		weighs("259:0", "8:0")
		mustReload(t, n.agent, "ioCost: {mode: on, disks: [{name: sda}]}")
		d.expect(t, 1)
		mustReload(t, n.agent, "ioCost: {mode: off}")
		d.expect(t, 0)
		weighs()
		mustReload(t, n.agent, "ioCost: {mode: on}")
		d.expect(t, 2)
		mustReload(t, n.agent, "mode: preview\nioCost: {mode: on}")
		d.expect(t, 0)
		n.sleep(time.Minute)
		d.expect(t, 0)
		mustReload(t, n.agent, "ioCost: {mode: on}")
		d.expect(t, 2)
		n.stop()
		d.expect(t, 0)
	})
}

func TestDisksAfterACrash(t *testing.T) {
	d, originals := oneDrive(), filepath.Join(t.TempDir(), "originals")
	inBubble(t, setup{config: ioCost, disks: d, originals: originals}, func(t *testing.T, n *testNode) {
		n.sleep(time.Second)
		d.expect(t, 1)
		text, err := os.ReadFile(originals)
		if err != nil {
			t.Fatal(err)
		}
		n.stop()
		// What a process that was killed leaves behind.
		d.now["259:0"] = iocost.Default(false)
		if err := os.WriteFile(originals, text, 0o600); err != nil {
			t.Fatal(err)
		}
		n.launch(setup{disks: d, originals: originals})
		n.sleep(time.Second)
		d.expect(t, 0)
	})
}

func TestDisksBesideKoordlet(t *testing.T) {
	d := oneDrive()
	inBubble(t, setup{host: host(other), config: ioCost, disks: d}, func(t *testing.T, n *testNode) {
		n.sleep(time.Minute)
		d.expect(t, 0)
	})
}
