package docs

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/docs/markdown"
	"github.com/sluice-dev/sluice/topology/synth"
)

// metricsAddress is the address in the documentation.
const metricsAddress = "127.0.0.1:9745"

// runsBesideAgent runs a block beside a sluice whose paths and addresses replace those of the
// documentation.
func runsBesideAgent(t *testing.T, b markdown.Block) {
	socket, address := startAgent(t)
	b.Text = strings.NewReplacer(status.DefaultSocket, socket, metricsAddress, address).Replace(b.Text)
	runs(t, b)
}

// startAgent starts a sluice on a made-up machine without a runtime. It ends with the test.
func startAgent(t *testing.T) (socket, address string) {
	t.Helper()
	dir := t.TempDir()
	host, socket, address := filepath.Join(dir, "host"), filepath.Join(dir, "status.sock"), freeAddress(t)
	spec, err := synth.Parse(madeUp)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "sluice.yaml")
	for _, err := range []error{
		spec.WriteTo(host),
		os.WriteFile(config, []byte("metrics: {listen: \""+address+"\"}\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(binDir, "sluice"), "run", "--config", config, "--host-root", host,
		"--socket", filepath.Join(dir, "nri.sock"), "--state-dir", filepath.Join(dir, "state"), "--status-socket", socket)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("sluice's log:\n%s", log.String())
		}
	})
	const patience = 20 * time.Second
	for _, to := range []struct{ network, address string }{{"unix", socket}, {"tcp", address}} {
		for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			c, err := net.Dial(to.network, to.address)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("sluice does not answer: %v", err)
			}
		}
	}
	return socket, address
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The commands in the alerts' runbooks exist.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	found := 0
	for _, m := range regexp.MustCompile(`\bsluice\s+([a-z]+)\b[^:]`).FindAllStringSubmatch(string(read(t, "configs/prometheus/alerts.yaml")), -1) {
		found++
		if _, known := commands[m[1]]; !known {
			t.Errorf("sluice has no command %s", m[1])
		}
	}
	if found < 10 {
		t.Errorf("%d commands found", found)
	}
}

// docs/metrics.md says when to react to each shipped alert.
func TestAlertsAreListed(t *testing.T) {
	t.Parallel()
	var shipped, listed []string
	for _, m := range regexp.MustCompile(`(?m)^  - alert: (\w+)$`).FindAllStringSubmatch(string(read(t, "configs/prometheus/alerts.yaml")), -1) {
		shipped = append(shipped, m[1])
	}
	p := find(t, filepath.Join("docs", "metrics.md"))
	for _, row := range p.Rows("react") {
		listed = append(listed, markdown.Spans(row[1])...)
	}
	slices.Sort(shipped)
	slices.Sort(listed)
	if len(shipped) < 10 || !slices.Equal(shipped, listed) {
		t.Errorf("configs/prometheus/alerts.yaml has the alerts\n%s, the page has\n%s", shipped, listed)
	}
}
