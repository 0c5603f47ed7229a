package kube

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	resourceapi "k8s.io/api/resource/v1"
)

// An API server that takes a slice and keeps other devices is not asked again and again, though each write is a change
// that lets the slice be compared. What the node no longer has is written at once, and the reason is logged once.
func TestAlteredSlices(t *testing.T) {
	t.Parallel()
	for says, alters := range map[string]func(*resourceapi.Device){
		"the feature gate DRAConsumableCapacity": func(one *resourceapi.Device) {
			capacity := one.Capacity[capacityName]
			capacity.RequestPolicy, one.AllowMultipleAllocations = nil, nil
			one.Capacity[capacityName] = capacity
		},
		"admission webhooks": func(one *resourceapi.Device) {
			rack := "r7"
			one.Attributes["rack"] = resourceapi.DeviceAttribute{StringValue: &rack}
		},
	} {
		d, api, _ := newDriver(t)
		log, logged := logtest.NewNullLogger()
		d.log, api.alters = log, func(s *resourceapi.ResourceSlice) { alters(&s.Spec.Devices[0]) }
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.slice.keep(ctx, log) })
		publishes := func(cpus int, writes string) {
			t.Helper()
			d.heard(t, cpus)
			await(t, "publication", func() bool {
				d.slice.mu.Lock()
				defer d.slice.mu.Unlock()
				return len(d.slice.published) == 1 && d.slice.published[0].CPUs == cpus
			})
			for range 30 {
				d.slice.check()
				time.Sleep(10 * time.Millisecond)
			}
			if api.has() != writes {
				t.Errorf("%s: %q is written, want %q", says, api.has(), writes)
			}
		}
		publishes(4, "POST")
		publishes(2, "POST PUT")
		cancel()
		running.Wait()
		var warnings []string
		for _, entry := range logged.AllEntries() {
			if entry.Level == logrus.WarnLevel {
				warnings = append(warnings, entry.Data[logrus.ErrorKey].(error).Error())
			}
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], says) || !strings.Contains(warnings[0], "n1-cpus.sluice.dev") {
			t.Errorf("%s: logs %q", says, warnings)
		}
		if _, due := d.slice.next(d.slice.at.Add(operatorPause - 1)); due {
			t.Errorf("%s: it is tried again too early", says)
		}
		if _, due := d.slice.next(d.slice.at.Add(operatorPause)); !due {
			t.Errorf("%s: it is not tried again", says)
		}
	}
}
