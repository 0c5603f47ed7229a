package sell_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/runtime/kubelink"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/kubesocket"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// plugin serves a made-up status, which a test changes, on a socket.
type plugin struct {
	socket string
	stop   func()

	mu     sync.Mutex
	change func(*status.Status)
}

func startPlugin(t *testing.T) *plugin {
	t.Helper()
	p := &plugin{socket: filepath.Join(t.TempDir(), "kube.sock"), change: func(*status.Status) {}}
	p.serve(t)
	t.Cleanup(func() { p.stop() })
	return p
}

func (p *plugin) serve(t *testing.T) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(t.Output())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- kubesocket.Serve(ctx, kubesocket.Options{Path: p.socket, Log: log}, p, kubelink.New())
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Status returns the node as it was made, at this time.
func (p *plugin) Status() (*status.Status, error) {
	s := statustest.Selling(time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change(s)
	return s, nil
}

// Machine is no part of what is sold.
func (p *plugin) Machine() (*topology.Machine, error) { return &topology.Machine{}, nil }

// set changes what the status says from now on.
func (p *plugin) set(change func(*status.Status)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change = change
}

// offer lets the node offer this much CPU, in thousandths, and as many MiB of memory.
func (p *plugin) offer(milli int64) {
	p.set(func(s *status.Status) {
		s.Loop.Offer = control.Offer{
			Known: true, ShortTerm: control.Amount{CPU: workload.MilliCPU(milli), MemoryBytes: milli << 20},
			LongTerm: control.Amount{CPU: workload.MilliCPU(milli / 2), MemoryBytes: milli << 19},
		}
	})
}

// program is a running sluice-kube.
type program struct {
	*exec.Cmd
	log     string
	metrics string
}

// run starts sluice-kube for a node.
func run(t *testing.T, node, kubeconfig, socket string, flags ...string) *program {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	p := &program{log: filepath.Join(t.TempDir(), "log"), metrics: "http://" + address + "/metrics"}
	flags = append([]string{"run", "--node-name", node, "--kubeconfig", kubeconfig, "--socket", socket, "--metrics-listen", address}, flags...)
	p.Cmd = exec.Command("../../../bin/sluice-kube", flags...)
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.Stdout, p.Stderr = out, out
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatalf("make build: %v", err)
	}
	t.Cleanup(func() {
		p.Process.Kill()
		p.Wait()
		if text, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("the log of sluice-kube:\n%s", text)
		}
	})
	return p
}

// stop ends the program as the kubelet does.
func (p *program) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("sluice-kube ended with %v", err)
	}
}

// publications is how many the API server has taken.
func (p *program) publications(t *testing.T) int {
	t.Helper()
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, p.metrics, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), `sluice_kube_publications_total{result="ok"} `); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the metrics lack the number of publications")
	return 0
}
