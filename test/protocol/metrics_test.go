package protocol

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetricsOfPods scrapes a plugin with metrics by pod names, with two pods of the same name and
// one with a hostile name.
func TestMetricsOfPods(t *testing.T) {
	t.Parallel()
	r := New(t)
	config := filepath.Join(r.Dir, "sluice.yaml")
	if err := os.WriteFile(config, []byte("metrics: {containers: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Sluice(t, sluice, r.Host(t, "8 cores 2 threads"), config)
	for _, name := range []string{"db-0", "db-0", "a\"b\\c\n{}"} {
		pod, err := r.RunPod(Pod{Name: name, QoS: "burstable"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(pod, "main", Requests{CPU: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.Dir, "status.sock"))
	}}}
	answer, err := client.Get("http://sluice/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v, %s\n%s", err, answer.Status, body)
	}
	for _, line := range []string{
		`sluice_class_containers{class="LS"} 3`,
		`sluice_runtime_connected 1`,
		`sluice_container_requested_cpus{container="main",namespace="default",pod="db-0"} 1`,
		`sluice_container_requested_cpus{container="main",namespace="default",pod="a\"b\\c�{}"} 1`,
	} {
		if !strings.Contains(string(body), "\n"+line+"\n") {
			t.Errorf("%s is missing in\n%s", line, body)
		}
	}
}
