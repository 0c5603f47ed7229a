package agent

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs/fakekernel"
	"github.com/sluice-dev/sluice/pkg/knobs"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/topology/synth"
)

// TestWhoDoesNotYield checks that batch work may use nearly all of the node if the kernel preempts
// all of it at once. If not, the status and the decision name the pod that it doesn't preempt.
func TestWhoDoesNotYield(t *testing.T) {
	t.Parallel()
	class := func(class string) map[string]string { return map[string]string{"class.sluice.dev": class} }
	const threads, onlyWeights = "2 cores 2 threads memory 8G", "control: {mode: on, batch: {by: quota}}\n"
	const oneCookie = "classes: {BE: {cpu-identity: -1, core-sched: batch}}\n" + onlyWeights
	for name, test := range map[string]struct {
		config  string
		machine string
		asks    []ask
		noCores error
		stays   string // part of the reason; "" if all yield
	}{
		"besteffort alone":                  {onlyWeights, "", []ask{service("web/c", 2000), batch("job/c")}, nil, ""},
		"no weight":                         {"control: {mode: on, batch: {by: quota, onlineWeight: 100}}", "", []ask{service("web/c", 2000), batch("job/c")}, nil, "pod ns/job has no less weight than usual beside others (control.batch.onlineWeight)"},
		"no weight, and none beside":        {"control: {mode: on, batch: {by: quota, onlineWeight: 100}}", "", []ask{batch("job/c")}, nil, ""},
		"no room":                           {onlyWeights, "", []ask{service("web/c", 250000), batch("job/c")}, nil, "pod ns/job is beside /kubepods/pod-web, which has so much CPU weight"},
		"Burstable batch":                   {onlyWeights, "", []ask{service("web/c", 2000), batch("job/c"), {name: "low/c", qos: "burstable", milli: 1000, annotations: class("BE")}}, nil, "pod ns/low is Burstable: the kubelet writes its CPU weight"},
		"Guaranteed batch":                  {onlyWeights, "", []ask{service("web/c", 2000), {name: "low/c", milli: 1000, annotations: class("BE")}}, nil, "pod ns/low is Guaranteed"},
		"beside a service in besteffort":    {onlyWeights, "", []ask{batch("job/c"), {name: "kube-proxy/c", qos: "besteffort", annotations: class("LS")}}, nil, ""},
		"two threads":                       {onlyWeights, threads, []ask{service("web/c", 2000), batch("job/c")}, nil, "pod ns/job shares cores of two threads with others: it has no core-sched group"},
		"two threads, one cookie":           {oneCookie, threads, []ask{service("web/c", 2000), batch("job/c"), batch("more/c")}, nil, ""},
		"two threads, one has another way":  {oneCookie, threads, []ask{{name: "web/c", milli: 2000, annotations: map[string]string{"class.sluice.dev": "LS", "core-sched.sluice.dev": "mine"}}, {name: "job/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "BE", "core-sched.sluice.dev": "mine"}}}, nil, "pod ns/job is in the core-sched group ns/mine with others than batch work"},
		"two threads, Debian's own kernel":  {oneCookie, threads, []ask{service("web/c", 2000), batch("job/c")}, unix.EINVAL, "pod ns/job has processes outside of its core-sched group batch"},
		"two threads, and a busy namespace": {oneCookie, threads, []ask{service("web/c", 2000), {name: "job/c", qos: "besteffort", annotations: map[string]string{"class.sluice.dev": "BE", "core-sched.sluice.dev": "own"}}}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := knobSetup{config: test.config}
			s.options = func(_ *knobNode, o *Options) {
				o.Cores = &oneMachine{err: test.noCores}
				if test.machine != "" {
					m, err := synth.Machine(test.machine)
					if err != nil {
						t.Fatal(err)
					}
					o.Machine = m
				}
			}
			onLoop(t, fakekernel.MainlineV2(), s, func(t *testing.T, h *loopNode) {
				h.run(test.asks...)
				h.uses["job/c"], h.uses["low/c"] = 8, 8
				h.steps(3 * time.Second)
				var b status.Batch
				h.loop(func() { b = h.agent.loop.BatchStatus() })
				if test.stays == "" && (b.ThresholdPercent != 100 || b.ThresholdWhy != "") || test.stays != "" && (b.ThresholdPercent != 65 || !strings.Contains(b.ThresholdWhy, test.stays)) {
					t.Errorf("%d %%, %q, want %q", b.ThresholdPercent, b.ThresholdWhy, test.stays)
				}
				h.audit.mu.Lock()
				defer h.audit.mu.Unlock()
				told := false
				for i := range h.audit.all {
					told = told || h.audit.all[i].Controller == "batch" && strings.Contains(h.audit.all[i].Why, "not 100%, since "+test.stays)
				}
				if test.stays != "" && !told {
					t.Errorf("no decision says so: %+v", h.audit.all)
				}
			})
		})
	}
}

// oneMachine implements core scheduling, or returns the kernel's error for all of it.
type oneMachine struct{ err error }

func (c *oneMachine) Supported() (knobs.Support, string) {
	if c.err != nil {
		return knobs.Unsupported, c.err.Error()
	}
	return knobs.Supported, ""
}

func (c *oneMachine) Join(_ string, pids ...int) (int, error) { return len(pids), c.err }
