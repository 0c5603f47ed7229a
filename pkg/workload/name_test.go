package workload

import (
	"strings"
	"testing"
)

func TestWorkloadNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ref, owner, want string }{
		{"shop/web-5d4f8c9b7d-abcde", "", "shop/web-5d4f8c9b7d-abcde"}, // a and e are in no hash
		{"shop/web-5d4f8c9b7d-bcdf2", "", "shop/web"},
		{"shop/web-5d4f8c9b7d-bcdf2", "ReplicaSet shop/web-5d4f8c9b7d", "shop/web"},
		{"shop/agent-bcdf2", "", "shop/agent"},
		{"shop/agent-bcdf2", "DaemonSet shop/agent", "shop/agent"},
		{"shop/db-0", "", "shop/db"},
		{"shop/db-0", "StatefulSet shop/db", "shop/db"},
		{"shop/report-29382740-bcdf2", "", "shop/report"},
		{"shop/report-29382740-bcdf2", "Job shop/report-29382740", "shop/report"},
		{"shop/report-7", "Job shop/report-7", "shop/report-7"},
		{"shop/web", "", "shop/web"}, {"shop/-0", "", "shop/"}, {"", "", ""}, {"-", "odd", "-"},
	} {
		if got := NameOf(c.ref, c.owner); got != c.want {
			t.Errorf("%q of %q: %q, want %q", c.ref, c.owner, got, c.want)
		}
	}
}

// A workload has the name of its owner or pod, or the beginning of it.
func FuzzWorkloadName(f *testing.F) {
	f.Add("shop/web-5d4f8c9b7d-bcdf2", "ReplicaSet shop/web-5d4f8c9b7d")
	f.Add("shop/db-0", "")
	f.Fuzz(func(t *testing.T, ref, owner string) {
		_, of, owned := strings.Cut(owner, " ")
		name := NameOf(ref, owner)
		if !owned {
			of = ref
		}
		if !strings.HasPrefix(of, name) || name == "" && of != "" {
			t.Errorf("%q of %q is %q", ref, owner, name)
		}
	})
}
