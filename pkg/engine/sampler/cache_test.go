package sampler

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/resctrl"
)

// TestACacheThatIsUnavailable checks that a counter which resctrl shows as Unavailable for one reading
// changes nothing about the bandwidth. The counters are those of a group that is old.
func TestACacheThatIsUnavailable(t *testing.T) {
	in(t, func(b *bed) {
		b.put("proc/self/mountinfo", "60 23 0:50 / /sys/fs/resctrl rw - resctrl resctrl rw\n")
		b.put("sys/fs/resctrl/schemata", "L3:0=fff;1=fff\n")
		b.put("sys/fs/resctrl/info/L3_MON/num_rmids", "64\n")
		b.put("sys/fs/resctrl/info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\n")
		b.put("sys/fs/resctrl/mon_groups/other/tasks", "")
		host, err := resctrl.Open(b.root)
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		if err := host.Watch("", "c0"); err != nil {
			t.Fatal(err)
		}
		b.rdt = host
		targets := b.containers(1)
		for i, c := range []struct {
			total0, total1 string
			want           float64
		}{
			{"8000000000000", "9000000000000", 0},
			{"8000000000100", "9000000000100", 200},
			{"8000000000200", "Unavailable", 200},
			{"8000000000300", "9000000000300", 200},
			{"8000000000300", "9000000000400", 100},
		} {
			for id, total := range map[string]string{"00": c.total0, "01": c.total1} {
				dir := "sys/fs/resctrl/mon_groups/sluice-c0/mon_data/mon_L3_" + id
				b.put(dir+"/llc_occupancy", "4096\n")
				b.put(dir+"/mbm_total_bytes", total+"\n")
			}
			b.Refresh()
			if err := b.sample(time.Second, targets); err != nil {
				t.Fatal(err)
			}
			if got := b.into.Containers[0].Cache; got.Bandwidth != c.want || got.Occupancy != 8192 || !got.At.Equal(b.into.Now) {
				t.Errorf("reading %d: %+v, want a bandwidth of %v", i, got, c.want)
			}
		}
	})
}
