package agent

import (
	"os"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/kernel/newidle"
)

// scheduler has the feature that decides when CPUs look for waiting threads.
type scheduler struct {
	mu     sync.Mutex
	always bool
}

func (s *scheduler) Read() (newidle.Search, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.always {
		return newidle.Always, nil
	}
	return newidle.Sometimes, nil
}

func (s *scheduler) SetAlways(always bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = always
	return nil
}

func (s *scheduler) expect(t *testing.T, always bool) {
	t.Helper()
	if now, _ := s.Read(); (now == newidle.Always) != always {
		t.Errorf("CPUs look %s, always should be %v", now, always)
	}
}

func newidleAlways(c *config.Config) { c.NewidleBalance = config.NewidleAlways }

func TestNewidleBalance(t *testing.T) {
	s := &scheduler{}
	inBubble(t, setup{config: newidleAlways, scheduler: s}, func(t *testing.T, n *testNode) {
		reload := func(change func(*config.Config)) {
			cfg := config.Default()
			change(cfg)
			if _, err := n.agent.Reconfigure(Reload{Config: cfg}); err != nil {
				t.Fatal(err)
			}
		}
		s.expect(t, true)
		reload(func(*config.Config) {})
		s.expect(t, false)
		reload(newidleAlways)
		s.expect(t, true)
		reload(func(c *config.Config) { newidleAlways(c); c.Mode = config.Preview })
		s.expect(t, false)
		reload(newidleAlways)
		s.expect(t, true)
		n.stop()
		s.expect(t, false)
	})
}

func TestNewidleBalanceBesideKoordlet(t *testing.T) {
	s, dir := &scheduler{}, hostDir(t, host(other))
	inBubble(t, setup{host: os.DirFS(dir), config: newidleAlways, scheduler: s}, func(t *testing.T, n *testNode) {
		s.expect(t, false)
		leave(t, dir, other)
		n.sleep(2 * neighboursInterval)
		s.expect(t, true)
	})
}
