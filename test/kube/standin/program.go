package standin

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
	"syscall"
	"testing"
)

// Program is a running sluice-kube.
type Program struct {
	*exec.Cmd
	log     string
	metrics string
}

// Run starts sluice-kube for a node, with further flags. It ends with the test.
func Run(t testing.TB, node, kubeconfig, socket string, flags ...string) *Program {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	p := &Program{log: filepath.Join(t.TempDir(), "log"), metrics: "http://" + address + "/metrics"}
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
		p.Kill()
		if text, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("the log of sluice-kube:\n%s", text)
		}
	})
	return p
}

// Stop ends the program as the kubelet does.
func (p *Program) Stop(t testing.TB) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("sluice-kube ended with %v", err)
	}
}

// Kill ends the program as a crash would.
func (p *Program) Kill() {
	p.Process.Kill()
	p.Wait()
}

// Publications is how many the API server has taken.
func (p *Program) Publications(t testing.TB) int {
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

// Log is what the program has logged.
func (p *Program) Log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
