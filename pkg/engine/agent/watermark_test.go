package agent

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
	"github.com/sluice-dev/sluice/pkg/status"
)

// marks holds a kernel's watermarks.
type marks struct {
	mu  sync.Mutex
	now watermark.Values
}

var usualMarks = watermark.Values{ScaleFactor: 10, MinFreeKB: 1000}

func (m *marks) Read() (watermark.Values, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, nil
}

func (m *marks) Write(to watermark.Values) (watermark.Values, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = to
	return to, nil
}

func (m *marks) expect(t *testing.T, raised bool) {
	t.Helper()
	if now, _ := m.Read(); (now != usualMarks) != raised {
		t.Errorf("watermarks are %+v, raised should be %v", now, raised)
	}
}

func autoMarks(c *config.Config) { c.Memory.GlobalWatermark = config.WatermarkAuto }

func TestWatermarks(t *testing.T) {
	m := &marks{now: usualMarks}
	inBubble(t, setup{config: autoMarks, marks: m}, func(t *testing.T, n *testNode) {
		m.expect(t, true)
		n.stop()
		m.expect(t, false)
	})
}

func TestWatermarksBesideKoordlet(t *testing.T) {
	t.Run("found", func(t *testing.T) {
		m := &marks{now: usualMarks}
		inBubble(t, setup{host: host(other), config: autoMarks, marks: m}, func(t *testing.T, _ *testNode) { m.expect(t, false) })
	})
	t.Run("comes later", func(t *testing.T) {
		dir := hostDir(t, host(nil))
		m := &marks{now: usualMarks}
		inBubble(t, setup{host: os.DirFS(dir), config: autoMarks, marks: m}, func(t *testing.T, n *testNode) {
			m.expect(t, true)
			for name, f := range other {
				name = filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n.sleep(time.Minute)
			if s := n.status(); s.Mode != status.ModePreview {
				t.Fatalf("mode %s", s.Mode)
			}
			n.stop()
			m.expect(t, false)
		})
	})
	t.Run("goes", func(t *testing.T) {
		dir := hostDir(t, host(other))
		m := &marks{now: usualMarks}
		inBubble(t, setup{host: os.DirFS(dir), config: autoMarks, marks: m}, func(t *testing.T, n *testNode) {
			m.expect(t, false)
			leave(t, dir, other)
			n.sleep(4 * neighboursInterval)
			m.expect(t, true)
			if times := n.log.count("watermarks are raised"); times != 1 {
				t.Errorf("raised %d times", times)
			}
			n.stop()
			m.expect(t, false)
		})
	})
}
