package network

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	titles = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	route  = "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
	inside = "cni0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
	reject = "blackhole\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"
	zero   = "00000000000000000000000000000000"
	route6 = zero + " 00 " + zero + " 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     bond0\n"
	none6  = zero + " 00 " + zero + " 00 " + zero + " ffffffff 00000001 00000000 00200200       lo\n"
	link6  = "fe800000000000000000000000000000 40 " + zero + " 00 " + zero + " 00000100 00000001 00000000 00000001     eth0\n"
)

// TestUplinks reads the routes of a made-up host.
func TestUplinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ v4, v6, want string }{
		"both":         {titles + route + inside, route6 + link6 + none6, "bond0 eth0"},
		"the same one": {titles + route, strings.ReplaceAll(route6, "bond0", "eth0"), "eth0"},
		"none":         {titles + inside + reject, none6, ""},
		"no IPv6":      {titles + route, "", "eth0"},
		"no IPv4":      {"", route6, "bond0"},
		"a spare one": {
			titles + strings.Replace(strings.Replace(route, "eth0", "eth1", 1), "\t100\t", "\t1002\t", 1) + route,
			route6 + strings.Replace(strings.Replace(route6, "bond0", "wlan0", 1), "00000400", "00000401", 1), "bond0 eth0",
		},
		"two of a metric": {titles + route + strings.Replace(route, "eth0", "eth1", 1), "", "eth0 eth1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &Host{root: t.TempDir(), process: "proc/1/"}
			if err := os.MkdirAll(h.path("proc/1/net"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"route": c.v4, "ipv6_route": c.v6} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(h.path(filepath.Join("proc/1/net", file)), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := h.Uplinks()
			if err != nil || strings.Join(got, " ") != c.want {
				t.Errorf("got %v, %v; want %s", got, err, c.want)
			}
		})
	}
}

// TestSpeed reads the speed of made-up devices.
func TestSpeed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"10000\n": 10e9, "-1\n": 0, "0\n": 0} {
		h := &Host{root: t.TempDir()}
		if err := os.MkdirAll(h.path("sys/class/net/eth0"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.path("sys/class/net/eth0/speed"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Speed("eth0"); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	if _, err := (&Host{root: t.TempDir()}).Speed("eth0"); err == nil {
		t.Error("a device that does not exist has a speed")
	}
}

const devices = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       2    0    0    0     0          0         0      100       2    0    0    0     0       0          0
  eth0:    5418      79    0    0    0     0          0         0  3411408     102    0    0    0     0       0          0
net1:7 1 0 0 0 0 0 0 18446744073709551615 1 0 0 0 0 0 0
`

func TestSent(t *testing.T) {
	t.Parallel()
	if got, err := parseSent([]byte(devices)); err != nil || got != 3411407 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := parseSent([]byte("\n\neth0: 1 2 3\n")); err == nil || !strings.Contains(err.Error(), "3 counters of device eth0") {
		t.Errorf("got %v", err)
	}
}

// FuzzFiles reads texts that the kernel never writes.
func FuzzFiles(f *testing.F) {
	f.Add(titles+route+inside, 0)
	f.Add(route6+none6, 1)
	f.Add(devices, 2)
	f.Fuzz(func(t *testing.T, text string, kind int) {
		switch kind % 3 {
		case 0:
			if names, err := parseRoutes(strings.NewReader(text)); err == nil && slices.Contains(names, "") {
				t.Error("a device without a name")
			}
		case 1:
			if names, err := parseRoutes6(strings.NewReader(text)); err == nil && slices.Contains(names, "lo") {
				t.Error("the loopback is an uplink")
			}
		default:
			parseSent([]byte(text)) // it must not panic
		}
	})
}

// TestMounted finds network namespaces among what is mounted.
func TestMounted(t *testing.T) {
	t.Parallel()
	const text = `22 28 0:21 / /proc rw,nosuid shared:5 - proc proc rw
605 25 0:4 net:[4026532285] /run/netns/4a84c712 rw shared:310 - nsfs nsfs rw
606 25 0:4 ipc:[4026532283] /run/ipcns/4a84c712 rw shared:311 - nsfs nsfs rw
607 28 0:4 net:[4026532286] /var/lib/pods/of\040batch rw - nsfs nsfs rw
608 28 0:4 net:[4026532287] /odd rw - tmpfs tmpfs rw
`
	got, err := parseMounted(strings.NewReader(text))
	if want := []string{"/run/netns/4a84c712", "/var/lib/pods/of batch"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
