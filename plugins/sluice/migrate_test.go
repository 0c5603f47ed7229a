package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/migrate"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// staticHost is a machine of four CPUs whose kubelet has this checkpoint.
func staticHost(t *testing.T, checkpoint string) string {
	t.Helper()
	root := madeUpHost(t)
	for name, text := range map[string]string{
		"var/lib/kubelet/cpu_manager_state":    checkpoint,
		"var/lib/kubelet/allocated_pods_state": `{"data":"{\"entries\":{\"1\":{\"ContainerResources\":{\"main\":{\"requests\":{\"cpu\":\"2\"}}}}}}","checksum":1}`,
		"proc/9/comm":                          "kubelet\n",
		"proc/9/cmdline":                       "kubelet\x00--config=/etc/k.yaml\x00--hostname-override=n1\x00",
		"etc/k.yaml":                           "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {align-by-socket: \"true\"}\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const twoCPUs = `{"policyName":"static","defaultCpuSet":"0,3","entries":{"1":{"main":"1-2"}},"checksum":1}`

func TestMigrateStatic(t *testing.T) {
	t.Parallel()
	s := statustest.Calm()
	s.Containers = []status.Container{{ID: "c", PodUID: "1", Ref: "data/db-0/main", Class: workload.LS, Requested: 2000}}
	socket := serve(t, plugin{status: s})
	root := staticHost(t, twoCPUs)
	got := run(t, "", "migrate", "static", "--plan", "--host-root", root, "--status-socket", socket)
	for _, want := range []string{"data/db-0", "class.sluice.dev/container.main: LSR", "kubectl drain n1 ", "(/etc/k.yaml,", "align-by-socket: true", "rm /var/lib/kubelet/cpu_manager_state"} {
		if got.exit != 0 || !strings.Contains(got.out, want) {
			t.Errorf("exit %d, %q is not in\n%s%s", got.exit, want, got.out, got.errs)
		}
	}

	// Without a plugin, the record of the kubelet tells what is requested.
	got = run(t, "", "migrate", "static", "--plan", "-o", "json", "--host-root", root, "--status-socket", filepath.Join(root, "none"))
	var p migrate.Plan
	if err := json.Unmarshal([]byte(got.out), &p); err != nil || len(p.Pods) != 1 {
		t.Fatalf("%v: %s%s", err, got.out, got.errs)
	}
	if pod := p.Pods[0]; got.exit != 0 || pod.UID != "1" || pod.Name != "" || pod.Containers[0].NewCPUs.Size() != 2 || !strings.Contains(p.Notes[0], "kubectl get pods") {
		t.Errorf("exit %d: %+v", got.exit, p)
	}

	all := staticHost(t, `{"policyName":"static","defaultCpuSet":"0","entries":{"1":{"main":"1-3"},"2":{"x":"0"}},"checksum":1}`)
	got = run(t, "", "migrate", "static", "--plan", "--host-root", all, "--status-socket", socket, "--config", file(t, "sluice.yaml", "reserved: 0-1\n"))
	if got.exit != exitFailure || !strings.Contains(got.errs, "would be refused, data/db-0/main first") || !strings.Contains(got.out, "data/db-0/main would be refused: ") {
		t.Errorf("exit %d: %s\n%s", got.exit, got.errs, got.out)
	}
}

func TestMigrateStaticRefuses(t *testing.T) {
	t.Parallel()
	broken := file(t, "sluice.yaml", "mode: of\n")
	for _, test := range []struct {
		args       []string
		checkpoint string
		exit       int
		text       string
	}{
		{nil, twoCPUs, exitUsage, "migrate static changes nothing: it shows a plan, with --plan"},
		{[]string{"--plan", "now"}, twoCPUs, exitUsage, "now"},
		{[]string{"--plan", "--config", broken}, twoCPUs, exitFailure, broken},
		{[]string{"--plan"}, `{"policyName":`, exitFailure, "/var/lib/kubelet/cpu_manager_state: "},
		{[]string{"--plan"}, `{"policyName":"none","defaultCpuSet":""}`, 0, ""},
	} {
		got := run(t, "", append([]string{"migrate", "static", "--host-root", staticHost(t, test.checkpoint)}, test.args...)...)
		if got.exit != test.exit || !strings.Contains(got.errs, test.text) {
			t.Errorf("%q: exit %d, want %d: %s", test.args, got.exit, test.exit, got.errs)
		}
	}
}
