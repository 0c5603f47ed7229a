package network

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const rootVariable = "SLUICE_TEST_HOST_ROOT"

// TestHostRoot sees the host from below another root, as in a pod, where the host's process 1 stands for the host.
// Since this machine's process 1 may not let itself be looked at, the test starts again as process 1 of its own.
func TestHostRoot(t *testing.T) {
	needRoot(t)
	if root := os.Getenv(rootVariable); root != "" {
		testHostRoot(t, root)
		return
	}
	again := exec.Command("/proc/self/exe", "-test.run=^TestHostRoot$", "-test.v")
	again.Env = append(os.Environ(), rootVariable+"="+t.TempDir())
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if told, err := again.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, told)
	}
}

func testHostRoot(t *testing.T, root string) {
	proc, sys, here := filepath.Join(root, "proc"), filepath.Join(root, "sys"), "/run/netns/sluice-test"
	err := errors.Join(
		os.Mkdir(proc, 0o700), os.Mkdir(sys, 0o700), os.MkdirAll("/run/netns", 0o755),
		unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
		unix.Mount("tmpfs", "/run/netns", "tmpfs", 0, ""),
		unix.Mount("proc", proc, "proc", 0, ""),
		unix.Mount("/sys", sys, "", unix.MS_BIND|unix.MS_REC, ""),
		os.WriteFile(here, nil, 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		t.Fatal(err)
	}
	host, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := host.Uplinks(); err != nil {
		t.Error(err)
	}
	if sent, err := host.Sent("lo"); err != nil {
		t.Errorf("%d bytes, %v", sent, err)
	}
	if _, err := host.Pod(1, ""); !errors.Is(err, ErrHostNetwork) {
		t.Errorf("process 1: %v", err)
	}
	a, b := newSandbox(t), newSandbox(t)
	connect(t, a, b, "eth0", "eth0", "192.0.2.1/24", "192.0.2.2/24")
	if err := unix.Mount("/proc/"+strconv.Itoa(a.pid)+"/ns/net", here, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	byProcess := open(t, host, a)
	if err := byProcess.Limit(1e6); err != nil {
		t.Error(err)
	}
	for _, path := range []string{here, "/var" + here, "/proc/" + strconv.Itoa(a.pid) + "/ns/net"} {
		byPath, err := host.Pod(0, path)
		if err != nil {
			t.Fatal(err)
		}
		if limited, err := byPath.IsLimited(); err != nil || !limited || byPath.ID() != byProcess.ID() {
			t.Errorf("%s: limited %t, %v", path, limited, err)
		}
		byPath.Close()
	}
	if n, err := host.Release(nil, false); err != nil || n != 1 {
		t.Errorf("%d limited, %v", n, err)
	}
}
