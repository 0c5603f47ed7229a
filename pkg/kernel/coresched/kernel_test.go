package coresched

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

// child is an environment variable that turns this binary into a process which starts a thread and
// a process for each line that it reads, and prints the IDs of both.
const child = "SLUICE_CORESCHED_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		beChild()
		return
	}
	os.Exit(m.Run())
}

func beChild() {
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		tid := make(chan int)
		go func() {
			runtime.LockOSThread()
			tid <- unix.Gettid()
			select {}
		}()
		cmd := exec.Command("/proc/self/exe")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if _, err := cmd.StdinPipe(); err != nil {
			panic(err)
		}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		fmt.Println(<-tid, cmd.Process.Pid)
	}
}

type process struct {
	pid int
	in  io.Writer
	out *bufio.Reader
}

func start(t *testing.T) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), child+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	p := &process{cmd.Process.Pid, in, bufio.NewReader(out)}
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	return p
}

// fork makes the process start a thread and a process.
func (p *process) fork(t *testing.T) (tid, pid int) {
	t.Helper()
	fmt.Fprintln(p.in)
	line, err := p.out.ReadString('\n')
	if _, scan := fmt.Sscan(line, &tid, &pid); scan != nil {
		t.Fatal(line, err, scan)
	}
	return tid, pid
}

// tasks lists the threads of a process.
func tasks(t *testing.T, pid int) []int {
	t.Helper()
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(dirs) == 0 {
		t.Fatal(dirs, err)
	}
	ids := make([]int, len(dirs))
	for n, dir := range dirs {
		ids[n], _ = strconv.Atoi(filepath.Base(dir))
	}
	return ids
}

// same checks that all threads of all processes have the same cookie, and returns it.
func same(t *testing.T, g *Groups, pids ...int) uint64 {
	t.Helper()
	want, err := g.Cookie(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		for _, tid := range tasks(t, pid) {
			if got, err := g.Cookie(tid); err != nil || got != want {
				t.Errorf("thread %d of process %d has cookie %#x, %v; want %#x", tid, pid, got, err, want)
			}
		}
	}
	return want
}

// TestRealKernel needs a machine with SMT and a kernel with core scheduling. It also runs in a
// guest of test/vm with SMT, where its output says whether the guest's kernel has core scheduling.
func TestRealKernel(t *testing.T) {
	g := New()
	if support, why := g.Supported(); support != knobs.Supported {
		t.Skipf("SKIPPED, core scheduling is %s here: %s", support, why)
	}
	a, b, c, d := start(t), start(t), start(t), start(t)
	join(t, g, 2, "ns/a", a.pid, b.pid)
	join(t, g, 1, "ns/c", c.pid)
	first, second := same(t, g, a.pid, b.pid), same(t, g, c.pid)
	if first == 0 || second == 0 || first == second || same(t, g, d.pid) != 0 {
		t.Fatalf("cookies %#x and %#x", first, second)
	}

	tid, pid := a.fork(t)
	if got, err := g.Cookie(tid); got != first {
		t.Errorf("a later thread has cookie %#x, %v; want %#x", got, err, first)
	}
	if same(t, g, pid) != first {
		t.Error("a later child has not inherited the cookie")
	}

	// After a restart, Groups finds the cookie on any member, and a child keeps it alive without
	// its parents.
	g = New()
	join(t, g, 1, "ns/a", d.pid, b.pid)
	if same(t, g, a.pid, b.pid, d.pid) != first {
		t.Error("the group has another cookie after a restart")
	}

	join(t, g, 0, "ns/c", c.pid)
	if err := g.Leave(a.pid, pid, c.pid); err != nil {
		t.Error(err)
	}
	if same(t, g, a.pid, pid, c.pid) != 0 || same(t, g, b.pid, d.pid) != first {
		t.Error("the wrong ones have left")
	}
	if id, err := g.Cookie(unix.Getpid()); id != 0 || err != nil {
		t.Errorf("the main thread has cookie %#x, %v", id, err)
	}
	if _, err := g.Join("ns/a", 1<<22+1); err != nil { // above any pid_max
		t.Errorf("an ended process: %v", err)
	}
}

// Each refusal is of a kind that reason knows.
func TestRefusal(t *testing.T) {
	t.Parallel()
	g := New()
	support, why := g.Supported()
	if support == knobs.Supported {
		t.Skip("SKIPPED, core scheduling works here")
	}
	if _, err := g.Join("ns/a", os.Getpid()); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want %q", err, why)
	}
	t.Logf("%s: %s", support, why)
}
