package guest

import (
	"os"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

// TestIdleIO compares what a service reads from a disk with the I/O scheduler mq-deadline, with and
// without the idle class of I/O for the batch work that reads, too. The disk is QEMU's, which makes so
// many operations a second.
func TestIdleIO(t *testing.T) {
	const scheduler = "/sys/block/vdb/queue/scheduler"
	must(t, os.WriteFile(scheduler, []byte("mq-deadline"), 0))
	t.Cleanup(func() { must(t, os.WriteFile(scheduler, []byte("none"), 0)) })
	rt := start(t, runtime.Options{})
	s, err := rt.StartSluice(runtime.SluiceOptions{})
	must(t, err)
	n := &node{t: t, rt: rt, sluice: s}
	service := n.reader("service", "LS", 1)
	batch := n.reader("batch", "BE", 32)
	const settle = 3 * time.Second
	var without, with float64
	for range 2 {
		must(t, n.configure("{}\n"))
		without += reads(t, service, batch, settle)
		must(t, n.configure("classes: {BE: {io: {priority: idle}}}\n"))
		with += reads(t, service, batch, settle)
	}
	t.Logf("beside idle I/O the service reads %.1f times as much", with/without)
	if with < 2*without {
		t.Errorf("beside idle I/O the service reads %.1f times as much as beside batch work's usual I/O", with/without)
	}
	must(t, s.Stop())
}
