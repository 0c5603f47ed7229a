package whatif

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/manifest"
	"github.com/sluice-dev/sluice/topology/synth"
)

func empty(t *testing.T) Empty {
	t.Helper()
	machine, err := synth.Machine("2 packages 2 nodes 8 cores 2 threads")
	if err != nil {
		t.Fatal(err)
	}
	return Empty{Config: config.Default(), Machine: machine}
}

const twoContainers = `kind: Pod
metadata: {name: db-0, namespace: data, annotations: {class.sluice.dev: CLASS}}
spec:
  RUNTIME
  containers:
  - {name: main, resources: {limits: {cpu: 8, memory: 4Gi}}}
  - {name: side, resources: {limits: {cpu: SIDE, memory: 1Gi}}}
`

func TestPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class, side, runtime string
		refused              string // "" if the pod is not refused
		warning              string
	}{
		"all placed":           {"LSE", "2", "", "", ""},
		"one refused":          {"LSE", "500m", "", "container data/db-0/side would be refused", ""},
		"pins in a VM":         {"LSE", "2", "runtimeClassName: kata-qemu", "2 of 2 containers would be refused, data/db-0/main first", ""},
		"shared CPUs in a VM":  {"LS", "2", "runtimeClassName: kata-qemu", "", "accounted only"},
		"another runtimeClass": {"LSE", "2", "runtimeClassName: runc", "", ""},
	} {
		text := strings.NewReplacer("CLASS", test.class, "SIDE", test.side, "RUNTIME", test.runtime).Replace(twoContainers)
		plans, err := Pods(empty(t), "pod.yaml", []byte(text))
		if err != nil || len(plans) != 1 || len(plans[0].Answers) != 2 || len(plans[0].Containers) != 2 {
			t.Errorf("%s: %+v, %v", name, plans, err)
			continue
		}
		refused := ""
		if err := Refusals(plans); err != nil {
			refused = err.Error()
		}
		if refused != test.refused {
			t.Errorf("%s: refused %q, want %q", name, refused, test.refused)
		}
		if got := strings.Join(plans[0].Answers[0].Warnings, " "); !strings.Contains(got, test.warning) || (got == "") != (test.warning == "") {
			t.Errorf("%s: warnings %q, want %q", name, got, test.warning)
		}
	}
	if _, err := Pods(empty(t), "pod.yaml", []byte("kind: Pod\n")); err == nil || !strings.HasPrefix(err.Error(), "pod.yaml: ") {
		t.Errorf("a manifest without containers: %v", err)
	}
}

// mute is a plugin of another version that answers for no container.
type mute struct{ Empty }

func (mute) Plan(manifest.Pod) ([]status.Answer, error) { return nil, nil }

func TestPodsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("CLASS", "LS", "SIDE", "1", "RUNTIME", "").Replace(twoContainers)
	if _, err := Pods(mute{empty(t)}, "-", []byte(text)); err == nil || !strings.Contains(err.Error(), "answers for 0 of 2 containers") {
		t.Error(err)
	}
}

// The OCI spec of a refused container has no settings, and that of a pin no quota.
func TestOCI(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("CLASS", "LSE", "SIDE", "500m", "RUNTIME", "").Replace(twoContainers)
	plans, err := Pods(empty(t), "-", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all := OCI(plans)
	r := all["data/db-0/main"]
	if len(all) != 1 || r == nil || r.CPU.Cpus == "" || r.CPU.Quota == nil || *r.CPU.Quota != -1 || *r.Memory.Limit != 4<<30 {
		t.Errorf("%+v", all)
	}
}

func TestOnEmpty(t *testing.T) {
	t.Parallel()
	m, err := synth.Machine("4 cores")
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for file, want := range map[string]string{
		"":                         "",
		write("reserved: \"0\"\n"): "",
		"/nonexistent":             "no such file",
		write("mode: of\n"):        "can't be used: line 1",
		write("reserved: 0-3\n"):   "leave no CPU of 0-3",
	} {
		p, err := OnEmpty(m, file)
		switch {
		case want == "" && (err != nil || p == nil):
			t.Errorf("%s: %v", file, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
