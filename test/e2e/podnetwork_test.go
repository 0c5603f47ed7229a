package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/runtime"
)

// TestPodNetwork tests the bed of pods with networks of their own: one sends to another one, which
// answers the test meanwhile. When the runtime has ended, nothing of the network is left.
func TestPodNetwork(t *testing.T) {
	for _, version := range runtimes {
		t.Run(nameOf(version), func(t *testing.T) {
			before := networks(t)
			t.Cleanup(func() { // after that of start, which closes the runtime
				left := slices.DeleteFunc(networks(t), func(found string) bool { return slices.Contains(before, found) })
				if len(left) > 0 {
					t.Errorf("the test has left %q", left)
				}
			})
			rt := start(t, runtime.Options{Containerd: version, PodNetwork: true})
			startSluice(t, rt, runtime.SluiceOptions{})
			testPodNetwork(t, rt)
		})
	}
}

func testPodNetwork(t *testing.T, rt *runtime.Runtime) {
	const sinkPort, echoPort = 9000, 9001
	service := run(t, rt, networked("service", "LS", fmt.Sprintf("echo=%d", echoPort), fmt.Sprintf("sink=%d", sinkPort)))
	batch := run(t, rt, networked("batch", "BE", fmt.Sprintf("send=2@%s:%d", service.IP, sinkPort)))
	if service.IP == "" || batch.IP == "" || service.IP == batch.IP {
		t.Errorf("the pods have the addresses %q and %q", service.IP, batch.IP)
	}
	received := func() uint64 {
		n, err := service.Container("c").Counted()
		must(t, err)
		return n
	}
	await(t, "the service receives", func() bool { return received() > 0 })
	began, first := time.Now(), received()
	trip := roundTrip(t, fmt.Sprintf("%s:%d", service.IP, echoPort))
	await(t, "it receives more", func() bool { return received() > first+100*mib })
	t.Logf("%.0f MiB/s; 100 bytes from the test and back in %v", float64(received()-first)/mib/time.Since(began).Seconds(), trip)

	must(t, batch.Remove())
	other := run(t, rt, networked("other", "BE", "sleep"))
	if slices.Contains([]string{"", service.IP, batch.IP}, other.IP) { // host-local gives addresses in turn
		t.Errorf("a later pod has the address %q, after %s and %s", other.IP, service.IP, batch.IP)
	}
}

// networked returns a pod of one container with a class and a network of its own.
func networked(name, class string, args ...string) runtime.PodSpec {
	spec := classed(name, class, runtime.Resources{})
	spec.OwnNetwork = true
	spec.Containers[0].Args = append([]string{"first"}, args...)
	return spec
}

// roundTrip returns how long 100 bytes take to the probe's echo and back.
func roundTrip(t *testing.T, address string) time.Duration {
	t.Helper()
	var conn net.Conn
	await(t, address+" listens", func() (listens bool) {
		var err error
		conn, err = net.DialTimeout("tcp", address, time.Second)
		return err == nil
	})
	defer conn.Close()
	sent, back := bytes.Repeat([]byte("ping"), 25), make([]byte, 100)
	began := time.Now()
	_, err := conn.Write(sent)
	must(t, err)
	_, err = io.ReadFull(conn, back)
	must(t, err)
	if !bytes.Equal(back, sent) {
		t.Errorf("%q came back", back)
	}
	return time.Since(began)
}

// networks lists the bridges of test beds, what CNI's library has cached of them, and whether the
// machine forwards.
func networks(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/sys/class/net/slpods*", "/var/lib/cni/results/*"} {
		found, err := filepath.Glob(pattern)
		must(t, err)
		all = append(all, found...)
	}
	forwards, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	must(t, err)
	return append(all, "ip_forward "+string(forwards))
}
