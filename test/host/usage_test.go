package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCPUTimeOfEndedThreads checks that what a thread has used still counts when it has ended.
func TestCPUTimeOfEndedThreads(t *testing.T) {
	t.Parallel()
	before, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const used = 50 * time.Millisecond
	thread := make(chan int)
	go burn(used, thread)
	task := filepath.Join("/proc/self/task", strconv.Itoa(<-thread))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(task); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the thread does not end")
		}
	}
	if after, err := CPUTime(os.Getpid()); err != nil || after-before < used {
		t.Errorf("used %v, %v; want at least %v", after-before, err, used)
	}
}

// burn uses CPU time in a thread of its own, which ends.
func burn(length time.Duration, thread chan<- int) {
	runtime.LockOSThread() // and never unlocks it, so that the thread ends with the goroutine
	if unix.Gettid() == os.Getpid() {
		go burn(length, thread) // the process' first thread does not end
		return
	}
	var now unix.Timespec
	for time.Duration(now.Nano()) < length {
		if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) != nil {
			break
		}
	}
	thread <- unix.Gettid()
}

func TestCPUTimeOfAnEndedProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if used, err := CPUTime(cmd.Process.Pid); err == nil {
		t.Errorf("used %v, want an error", used)
	}
}
