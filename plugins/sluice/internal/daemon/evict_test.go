package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/runtime/evict"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// A node without the sockets that its way of eviction needs says so when it starts.
func TestEvictors(t *testing.T) {
	t.Parallel()
	without := t.TempDir()
	with, err := os.MkdirTemp("", "host") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(with) })
	socket := filepath.Join(with, "run/containerd/containerd.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	for name, c := range map[string]struct {
		by         control.EvictBy
		root, kube string
		last       bool
		warnings   []string
		problem    string
	}{
		"report":                {by: control.EvictReport, root: without},
		"cri":                   {by: control.EvictCRI, root: with},
		"cri without a socket":  {by: control.EvictCRI, root: without, warnings: []string{"by: cri, which does not work"}},
		"kubernetes":            {by: control.EvictKubernetes, root: with, kube: "/x/kube.sock", last: true, problem: "not connected to the node's plugin at /x/kube.sock"},
		"without a last resort": {by: control.EvictKubernetes, root: without, kube: "/x/kube.sock", warnings: []string{"without a last resort at critical memory"}, problem: "not connected"},
		"without --kube-socket": {by: control.EvictKubernetes, root: with, last: true, warnings: []string{"no --kube-socket"}, problem: "no --kube-socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config.Default()
			cfg.Control.Mode, cfg.Control.Eviction.By = control.On, c.by
			s := service{Options: &Options{HostRoot: c.root, KubeSocket: c.kube}, link: kubelink.New()}
			log, logged := test.NewNullLogger()
			var o agent.Options
			s.addEvictors(cfg, &o, log)
			if o.Evictor == nil || (o.LastResort != nil) != c.last {
				t.Errorf("evictors %+v, %+v", o.Evictor, o.LastResort)
			}
			var warnings []string
			for _, e := range logged.AllEntries() {
				warnings = append(warnings, e.Message)
			}
			if len(warnings) != len(c.warnings) {
				t.Errorf("warns %q, want %q", warnings, c.warnings)
			}
			for i := range min(len(warnings), len(c.warnings)) {
				if !strings.Contains(warnings[i], c.warnings[i]) {
					t.Errorf("warns %q, want %q", warnings[i], c.warnings[i])
				}
			}
			if c.problem == "" {
				return
			}
			if got := o.EvictorProblem(); !strings.Contains(got, c.problem) {
				t.Errorf("problem %q, want %q", got, c.problem)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := o.Evictor.Evict(ctx, evict.Pod{UID: "u", Ref: "ns/p"}); !errors.Is(err, evictorder.ErrNobody) {
				t.Errorf("without sluice-kube: %v", err)
			}
			s.link.Connect()
			if got := o.EvictorProblem(); c.kube != "" && got != "" {
				t.Errorf("problem %q though sluice-kube is connected", got)
			}
		})
	}
}
