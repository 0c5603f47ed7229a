package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/runtime"
)

const linkSpeed = observe.BitRate(200e6) // speed of the link over which the test's pods send

// TestEgress lets pods with networks of their own send over a link that carries 200 Mbit/s, with and
// without Sluice.
func TestEgress(t *testing.T) { testEgress(t, start(t, runtime.Options{PodNetwork: true})) }

// TestEgressCRIO runs TestEgress on CRI-O.
func TestEgressCRIO(t *testing.T) {
	testEgress(t, start(t, runtime.Options{Containerd: runtime.CRIO, PodNetwork: true}))
}

func testEgress(t *testing.T, rt *runtime.Runtime) {
	// What this pod receives goes over the link.
	receiver, device := behindLink(t, rt, networked("receiver", "LS", "echo=9001", "sink=9000"))
	sends := func(connections int) string { return fmt.Sprintf("send=%d@%s:9000", connections, receiver.IP) }
	echo := receiver.IP + ":9001"

	spec := networked("batch-0", "BE", sends(8))
	spec.Annotations["tier.sluice.dev"] = "free"
	batch := []*runtime.Pod{run(t, rt, spec), run(t, rt, networked("batch-1", "BE", sends(8)))}
	service := run(t, rt, networked("service", "LS", sends(1)))
	senders := map[string]*runtime.Pod{"service": service, "batch-0": batch[0], "batch-1": batch[1]}
	await(t, "all send", func() bool { return rates(t, receiver, senders)["service"] > 0 })
	unmanaged, trip := rates(t, receiver, senders), trips(t, echo)
	t.Logf("without Sluice: %s; 100 bytes there and back in %v", text(unmanaged), trip)

	s := loopSluice(t, rt, fmt.Sprintf("control: {mode: on, egress: {mode: on, interfaces: [%s], linkSpeed: %d}}", device, linkSpeed))
	sent := func() (e status.Egress) {
		if st := statusOf(t, s); st.Loop.Egress != nil {
			e = *st.Loop.Egress
		}
		return e
	}
	await(t, "batch work goes to its floor", func() bool { e := sent(); return e.Room > 0 && e.Room <= linkSpeed/10 && e.BatchSent <= linkSpeed/10 })
	managed, tripManaged := rates(t, receiver, senders), trips(t, echo)
	t.Logf("with Sluice: %s; 100 bytes there and back in %v", text(managed), tripManaged)
	if managed["service"] < 1.5*unmanaged["service"] || managed["service"] < 0.75*float64(linkSpeed) {
		t.Errorf("the service sends %.0f Mbit/s, and %.0f without Sluice", managed["service"]/1e6, unmanaged["service"]/1e6)
	}

	must(t, service.Remove())
	delete(senders, "service")
	await(t, "batch work fills the link to the threshold", func() bool { return sent().BatchSent > linkSpeed*3/4 })
	alone, tripAlone := rates(t, receiver, senders), trips(t, echo)
	t.Logf("batch work alone: %s; 100 bytes there and back in %v", text(alone), tripAlone)
	if sum := alone["batch-0"] + alone["batch-1"]; sum > 0.92*float64(linkSpeed) || sum < 0.7*float64(linkSpeed) || alone["batch-0"] > 0.25*alone["batch-1"] {
		t.Error("batch work alone does not send 85 % of the link, a tenth of that by the pod of the tier free")
	}
	if tripAlone > trip/2 {
		t.Errorf("100 bytes take %v beside batch work, and %v without Sluice", tripAlone, trip)
	}

	explained, err := s.Explain("kube-system/batch-1")
	must(t, err)
	if !strings.Contains(explained, "may send") || !strings.Contains(explained, "on a link of 200 Mbit/s") {
		t.Errorf("explain tells nothing of it:\n%s", explained)
	}
	sound(t, s)
	must(t, s.Kill())
	await(t, "the failsafe lowers what batch work sends to its floor", func() bool {
		now := rates(t, receiver, senders)
		return now["batch-0"]+now["batch-1"] < float64(linkSpeed)/10
	})
	if !limited(t, batch[0]) {
		t.Error("the limit has gone with the plugin")
	}
	must(t, s.Restart())
	await(t, "the plugin has taken the limits over", func() bool { return sent().BatchSent > linkSpeed*3/4 })

	must(t, s.Configure("control: {mode: on}"))
	must(t, s.Signal(syscall.SIGHUP))
	await(t, "the limits end with the mode", func() bool { return !limited(t, batch[0]) && !limited(t, batch[1]) })
	must(t, s.Configure(fmt.Sprintf("control: {mode: on, egress: {mode: on, interfaces: [%s], linkSpeed: %d}}", device, linkSpeed)))
	must(t, s.Signal(syscall.SIGHUP))
	await(t, "limits again", func() bool { return limited(t, batch[0]) && limited(t, batch[1]) })
	hosts := run(t, rt, classed("on-the-host", "BE", runtime.Resources{}))
	await(t, "a pod on the host's network is recognized", func() bool {
		return slices.ContainsFunc(sent().Pods, func(p status.PodEgress) bool {
			return p.UID == hosts.UID && strings.Contains(p.Problem, "it is on the host's network")
		})
	})
	must(t, s.Stop())
	must(t, batch[1].Container("c").Crash()) // on CRI-O, its pod has no process then
	told, err := s.Restore()
	must(t, err)
	if limited(t, batch[0]) || !strings.Contains(told, "what 2 pods may send") {
		t.Errorf("limits are left: %s", told)
	}
}

// behindLink runs a pod and returns the device through which everything reaches it, which carries no more than
// linkSpeed.
func behindLink(t *testing.T, rt *runtime.Runtime, spec runtime.PodSpec) (*runtime.Pod, string) {
	t.Helper()
	ports := func() []string {
		found, err := filepath.Glob("/sys/class/net/slpods*/brif/*")
		must(t, err)
		return found
	}
	before := ports()
	pod := run(t, rt, spec)
	added := slices.DeleteFunc(ports(), func(port string) bool { return slices.Contains(before, port) })
	if len(added) != 1 {
		t.Fatalf("the devices %v were added for one pod", added)
	}
	device, err := netlink.LinkByName(filepath.Base(added[0]))
	must(t, err)
	const rate = uint64(linkSpeed / 8)
	must(t, netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
		Rate:       rate, Buffer: netlink.Xmittime(rate, 128<<10), Limit: uint32(rate / 10),
	}))
	return pod, device.Attrs().Name
}

// rates returns what pods send for two seconds, in bits per second, by name, and what the receiver gets.
func rates(t *testing.T, receiver *runtime.Pod, senders map[string]*runtime.Pod) map[string]float64 {
	t.Helper()
	read := func() map[string]float64 {
		got, err := receiver.Container("c").Counted()
		must(t, err)
		all := map[string]float64{"receiver": float64(got)}
		for name, p := range senders {
			n := networkOf(t, p)
			sent, err := n.Sent()
			must(t, err)
			n.Close()
			all[name] = float64(sent)
		}
		return all
	}
	before, began := read(), time.Now()
	time.Sleep(2 * time.Second)
	after, took := read(), time.Since(began).Seconds()
	for name := range after {
		after[name] = (after[name] - before[name]) * 8 / took
	}
	return after
}

func text(rates map[string]float64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		all = append(all, fmt.Sprintf("%s %.1f", name, rates[name]/1e6))
	}
	return strings.Join(all, ", ") + " Mbit/s"
}

// trips returns the median of how long 100 bytes take there and back.
func trips(t *testing.T, address string) time.Duration {
	t.Helper()
	all := make([]time.Duration, 9)
	for i := range all {
		all[i] = roundTrip(t, address)
	}
	slices.SortFunc(all, cmp.Compare)
	return all[len(all)/2]
}

// limited reports whether Sluice limits what a pod sends.
func limited(t *testing.T, pod *runtime.Pod) bool {
	t.Helper()
	n := networkOf(t, pod)
	defer n.Close()
	limited, err := n.IsLimited()
	must(t, err)
	return limited
}

// networkOf opens a pod's network, which the container's first process enters a moment after its start.
func networkOf(t *testing.T, pod *runtime.Pod) (n *network.Pod) {
	t.Helper()
	host, err := network.Open("/")
	must(t, err)
	await(t, "the container is on its pod's network", func() bool {
		pid, err := pod.Container("c").PID()
		must(t, err)
		n, err = host.Pod(pid, "")
		return err == nil
	})
	return n
}
