package docs

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/pelletier/go-toml/v2"
	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/workload"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	return readFile(t, filepath.Join(root, name))
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readTOML(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var file map[string]any
	if err := toml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// below follows keys into a file; it returns nil if they don't exist.
func below(file map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		file, _ = file[key].(map[string]any)
	}
	return file
}

const nriPlugin = "io.containerd.nri.v1.nri"

func TestContainerdFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version int64
		tool    string
	}{"sluice-2.toml": {3, "2"}, "sluice-1.7.toml": {2, "1.7"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := filepath.Abs(filepath.Join(root, "configs", "containerd", name))
			if err != nil {
				t.Fatal(err)
			}
			file := readTOML(t, read(t, filepath.Join("configs", "containerd", name)))
			if file["version"] != c.version {
				t.Errorf("version %v, want %d", file["version"], c.version)
			}
			want := map[string]any{
				"disable": false, "disable_connections": false, "socket_path": adaptation.DefaultSocketPath,
				"plugin_path": adaptation.DefaultPluginPath, "plugin_config_path": adaptation.DefaultPluginConfigPath,
				"plugin_registration_timeout": adaptation.DefaultPluginRegistrationTimeout.String(),
				"plugin_request_timeout":      adaptation.DefaultPluginRequestTimeout.String(),
			}
			if got := below(file, "plugins", nriPlugin); !reflect.DeepEqual(got, want) {
				t.Errorf("%v, want %v", got, want)
			}

			containerd := filepath.Join(root, "bin", "tools", c.tool, "containerd")
			if _, err := os.Stat(containerd); err != nil {
				t.Skipf("SKIPPED: not read by containerd itself: %v (make tools)", err)
			}
			main := filepath.Join(t.TempDir(), "config.toml")
			text := "version = " + map[int64]string{3: "3", 2: "2"}[c.version] + "\nimports = ['" + path + "']\n"
			if err := os.WriteFile(main, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command(containerd, "--config", main, "config", "dump").Output()
			if err != nil {
				t.Fatal(err)
			}
			has := below(readTOML(t, out), "plugins", nriPlugin)
			for key, value := range want {
				if has[key] != value {
					t.Errorf("containerd reads %s as %v, want %v", key, has[key], value)
				}
			}
		})
	}
}

func TestCRIOFile(t *testing.T) {
	t.Parallel()
	want := map[string]any{
		"enable_nri": true, "nri_disable_connections": false, "nri_listen": adaptation.DefaultSocketPath,
		"nri_plugin_dir": adaptation.DefaultPluginPath, "nri_plugin_config_dir": adaptation.DefaultPluginConfigPath,
		"nri_plugin_registration_timeout": adaptation.DefaultPluginRegistrationTimeout.String(),
		"nri_plugin_request_timeout":      adaptation.DefaultPluginRequestTimeout.String(),
	}
	if got := below(readTOML(t, read(t, "configs/crio/10-sluice.conf")), "crio", "nri"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The unit starts commands that exist, and systemd understands all of it.
func TestUnit(t *testing.T) {
	t.Parallel()
	const unit = "configs/systemd/sluice.service"
	found := 0
	for line := range strings.Lines(string(read(t, unit))) {
		if _, command, ok := strings.Cut(line, "=/usr/bin/sluice "); ok {
			checkCommand(t, commands, append([]string{"sluice"}, strings.Fields(command)...))
			found++
		}
	}
	if found != 2 {
		t.Errorf("the unit runs sluice by %d commands, want ExecStart and ExecStopPost", found)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skipf("SKIPPED: not read by systemd itself: %v", err)
	}
	out, _ := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(root, unit)).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "/usr/bin/sluice is not executable") {
			t.Error(line)
		}
	}
	const most = 35 // in tenths: 0 is harmless, 100 may do everything
	out, err := exec.Command("systemd-analyze", "security", "--offline=yes", fmt.Sprint("--threshold=", most), filepath.Join(root, unit)).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// The drop-ins add to the unit what control.egress and control.culprit.cpi need, and nothing else.
func TestDropIns(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"egress.conf": {"CapabilityBoundingSet=~CAP_NET_ADMIN", "CapabilityBoundingSet=~CAP_SYS_ADMIN", "RestrictNamespaces=~net"},
		"cycles.conf": {"SystemCallFilter=~@debug"}, // systemd's list of capabilities has no CAP_PERFMON
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkDropIn(t, name, want)
		})
	}
}

func checkDropIn(t *testing.T, dropIn string, want []string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skipf("SKIPPED: not read by systemd itself: %v", err)
	}
	unit := filepath.Join(t.TempDir(), "sluice.service")
	if err := os.WriteFile(unit, read(t, "configs/systemd/sluice.service"), 0o600); err != nil {
		t.Fatal(err)
	}
	restricted := func() map[string]bool {
		var said bytes.Buffer
		cmd := exec.Command("systemd-analyze", "security", "--offline=yes", "--json=short", unit)
		cmd.Stderr = &said
		out, err := cmd.Output()
		var all []struct {
			Name string
			Set  bool
		}
		if err = errors.Join(err, json.Unmarshal(out, &all)); err != nil || strings.Contains(said.String(), dropIn) {
			t.Fatalf("%v: %s", err, &said)
		}
		by := map[string]bool{}
		for _, a := range all {
			by[a.Name] = a.Set
		}
		return by
	}
	before := restricted()
	if err := errors.Join(os.Mkdir(unit+".d", 0o755), os.WriteFile(filepath.Join(unit+".d", dropIn), read(t, "configs/systemd/"+dropIn), 0o600)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for name, set := range restricted() {
		if before[name] != set {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("it changes %q, want %q", got, want)
	}
}

// Each example is placed as its class says, without a warning.
func TestExamples(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		class workload.Class
		cpus  int // 0 for all
	}{
		"lse": {workload.LSE, 4}, "lsr": {workload.LSR, 3}, "ls": {workload.LS, 0}, "be": {workload.BE, 0},
		"system": {workload.System, 0}, "koordinator": {workload.LSR, 4}, "katalyst": {workload.LSE, 4},
	}
	files, err := filepath.Glob(filepath.Join(root, "configs", "examples", "*"))
	if err != nil || len(files) != len(want) {
		t.Errorf("examples are %s, want %d", files, len(want))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		answers := planned(t, string(read(t, filepath.Join("configs", "examples", name+".yaml"))))
		for _, a := range answers {
			if a.Problem != "" || len(a.Warnings) > 0 {
				t.Errorf("%s: %s %q", a.Ref, a.Problem, a.Warnings)
			}
		}
		if a := answers[0]; a.Class != want[name].class || a.CPUs.Size() != want[name].cpus {
			t.Errorf("%s is %s on CPUs %s, want %s on %d", name, a.Class, a.CPUs, want[name].class, want[name].cpus)
		}
	}
}

// Each sed of a block for a cluster that edits files of configs changes each of them, into YAML.
func TestEditsOfManifests(t *testing.T) {
	t.Parallel()
	edits := 0
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			for line := range strings.Lines(b.Text) {
				if b.Kind == "sh cluster" && strings.HasPrefix(line, "sed ") && strings.Contains(line, "configs/") {
					edits++
					checkEdit(t, p.Name, line)
				}
			}
		}
	}
	if edits == 0 {
		t.Error("no edits found")
	}
}

// checkEdit executes a line of a page that edits files of configs, up to kubectl, in a copy.
func checkEdit(t *testing.T, page, line string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "configs"), os.DirFS(filepath.Join(root, "configs"))); err != nil {
		t.Fatal(err)
	}
	command, _, _ := strings.Cut(line, " | kubectl ")
	cmd := exec.Command("bash", "-euc", command)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %s: %v", page, command, err)
	}
	for word := range strings.FieldsSeq(command) {
		if !strings.HasPrefix(word, "configs/") {
			continue
		}
		edited := string(out)
		if len(out) == 0 {
			edited = string(readFile(t, filepath.Join(dir, word)))
		}
		if edited == string(read(t, word)) {
			t.Errorf("%s: %s changes nothing in %s", page, command, word)
		}
		for document := range strings.SplitSeq(edited, "\n---\n") {
			if err := yaml.Unmarshal([]byte(document), new(map[string]any)); err != nil {
				t.Errorf("%s: %s makes of %s: %v", page, command, word, err)
			}
		}
	}
}

func TestPicturesAreXML(t *testing.T) {
	t.Parallel()
	d := xml.NewDecoder(strings.NewReader(string(read(t, "docs/sluice.svg"))))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
