package control

import (
	"testing"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Old and new value of a decision have as many digits as it takes to see the difference.
func TestCPUsApart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b       workload.MilliCPU
		from, want string
	}{
		{10000, 18000, "10 CPUs", "18 CPUs"}, {1800, 1600, "1.8 CPUs", "1.6 CPUs"}, {1840, 1820, "1.84 CPUs", "1.82 CPUs"},
		{1801, 1802, "1.801 CPUs", "1.802 CPUs"}, {1801, 1801, "1.8 CPUs", "1.8 CPUs"}, {0, 20, "0 CPUs", "0.02 CPUs"},
	} {
		if from, to := distinctCPUs(c.a, c.b); from != c.from || to != c.want {
			t.Errorf("%d to %d milli-CPU: %s to %s, want %s to %s", c.a, c.b, from, to, c.from, c.want)
		}
	}
}
