package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// TestScheduling checks what the status says of requests: on 8 CPUs, of which CPU 0 is reserved, a
// pin, a service and batch work request 1 each. The pools divide 6 CPUs then: critical has 1, online
// has 3 for its load of 1.5, and batch work requests 1 of the others, so that the room is 1.
func TestScheduling(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(*config.Config)
		room int64  // in thousandths; -1 if it is not known
		why  string // part of the reason
	}{
		"overlap": {func(*config.Config) {}, -1, "pools.mode: overlap"},
		"sizes that stay": {func(c *config.Config) {
			c.Pools.Mode, c.Control.Pools.Mode = config.Exclusive, control.Off
			c.Pools.List[0].CPUs, c.Pools.List[2].CPUs = config.PoolSize{Count: 1}, config.PoolSize{Count: 1}
		}, -1, "control.pools is in mode off"},
		"preview": {func(c *config.Config) { c.Pools.Mode, c.Control.Mode = config.Exclusive, control.Preview }, -1, "control.pools is in mode preview"},
		"more pools than CPUs": {func(c *config.Config) {
			c.Pools.Mode = config.Exclusive
			c.Pools.List = append([]config.Pool{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}, c.Pools.List...)
		}, -1, "less than a core for each pool"},
		"exclusive": {func(c *config.Config) { c.Pools.Mode = config.Exclusive }, 1000, ""},
	} {
		n, now := looping(t, func(cfg *config.Config) {
			cfg.Reserved.Add(0)
			c.set(cfg)
		})
		n.run("db", "LSR", 1)
		n.run("web", "LS", 1)
		n.run("job", "BE", 1)
		if s := statusOf(t, n).Scheduling; s.Room != nil || s.RoomWhy == "" {
			t.Errorf("%s, before the first measurement: %+v", name, s)
		}
		for range 5 {
			*now = now.Add(time.Second)
			n.agent.Tick(seen(*now, "db", "web", "job"))
		}
		s := statusOf(t, n).Scheduling
		if s.Requested != 3000 || s.Allocatable != 7000 || s.OvercommitRatio != 3.0/7 {
			t.Errorf("%s: %+v", name, s)
		}
		room := int64(-1)
		if s.Room != nil {
			room = int64(*s.Room)
		}
		if room != c.room || !strings.Contains(s.RoomWhy, c.why) || (room >= 0) != (s.RoomWhy == "") {
			t.Errorf("%s: room %d, %+v, want %d and a reason with %q", name, room, s, c.room, c.why)
		}
	}
}
