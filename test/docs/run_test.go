package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/test/docs/markdown"
)

// madeUp is the machine for which the documentation's pods are planned.
const madeUp = "2 packages 8 cores 2 threads"

// TestMain sets these variables.
var (
	binDir          string            // the folder of the programs built for this test
	commands        map[string]string // the help of each command of sluice, by the words after "sluice"
	kubeCommands    map[string]string // of sluice-kube
	kubectlCommands map[string]string // of kubectl sluice
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docs-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", dir+"/", "./plugins/...")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
			return 1
		}
		binDir = dir
		commands, err = helps("sluice", "")
		if err == nil {
			kubeCommands, err = helps("sluice-kube", "")
		}
		if err == nil {
			kubectlCommands, err = helps("kubectl-sluice", "")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// shell runs a script as a reader at the repository's root would.
func shell(script, input string, flags ...string) (out, errs string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("bash", append(flags, "-euc", script)...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = root, strings.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"))
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			t.Run(fmt.Sprintf("%s:%d", p.Name, b.Line), func(t *testing.T) {
				t.Parallel()
				check, ok := map[string]func(*testing.T, markdown.Block){
					"sh": runs, "sh agent": runsBesideAgent, "sh make": makes, "sh bench": benchmarks,
					"sh node": wouldRun, "sh node bare": wouldRun, "sh node foreground": wouldRun,
					"sh cluster": wouldRun, "sh remote": wouldRun,
					"yaml": accepted, "yaml values": func(*testing.T, markdown.Block) {}, "yaml authorized": authorized, "yaml refused": refused, "toml": isTOML,
					"text": func(*testing.T, markdown.Block) {}, "http": isRequest, "json": isJSON,
				}[b.Kind]
				if !ok {
					t.Fatalf("blocks are not of kind %q", b.Kind)
				}
				check(t, b)
			})
		}
	}
}

func runs(t *testing.T, b markdown.Block) {
	out, errs, err := shell(b.Text, "")
	if err != nil || errs != "" {
		t.Fatalf("%v: %s", err, errs)
	}
	if b.Next != "" && out != b.Next {
		t.Errorf("prints\n%s\nthe page shows\n%s", out, b.Next)
	}
}

func makes(t *testing.T, b markdown.Block) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.Text) {
		target, ok := strings.CutPrefix(strings.TrimSpace(line), "make ")
		if !ok || !strings.Contains(string(makefile), "\n"+target+": ") {
			t.Errorf("%q is no target of the Makefile", line)
		}
	}
}

// benchmarks checks a block of go test: each name is that of a benchmark in one of the packages.
func benchmarks(t *testing.T, b markdown.Block) {
	command := regexp.MustCompile(`^go test -run '\^\$' -bench '?([\w|]+)'?(?: -benchtime \d+x)?((?: \./[\w/]+)+)\n$`)
	for line := range strings.Lines(b.Text) {
		parts := command.FindStringSubmatch(line)
		if parts == nil {
			t.Errorf("%q is not of the form %s", line, command)
			continue
		}
		files := strings.Join(strings.Fields(parts[2]), "/*_test.go ") + "/*_test.go"
		for name := range strings.SplitSeq(parts[1], "|") {
			if _, errs, err := shell(`grep -qE '^func Benchmark\w*`+name+`' `+files, ""); err != nil {
				t.Errorf("%s: no benchmark is called %s: %v %s", files, name, err, errs)
			}
		}
	}
}

// wouldRun checks a block without running it.
func wouldRun(t *testing.T, b markdown.Block) {
	if _, errs, err := shell(b.Text, "", "-n"); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
	for line := range strings.Lines(b.Text) {
		checkLine(t, line)
		for word := range strings.FieldsSeq(line) {
			if !strings.HasPrefix(word, "configs/") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, word)); err != nil {
				t.Error(err)
			}
		}
	}
}

func accepted(t *testing.T, b markdown.Block) {
	if !strings.Contains(b.Text, "kind: ") {
		if _, err := config.Parse([]byte(b.Text)); err != nil {
			t.Error(err)
		}
		return
	}
	agreed(t, planned(t, b.Text))
}

// authorized checks pods that the configuration allows more than others.
func authorized(t *testing.T, b markdown.Block) {
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, []byte(`authorize: [{features: [slo], namespaces: ["*"]}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	agreed(t, planned(t, b.Text, "--config", file))
}

func agreed(t *testing.T, pods []status.Answer) {
	t.Helper()
	for _, a := range pods {
		if a.Problem != "" || len(a.Warnings) > 0 {
			t.Errorf("%s: %s %q", a.Ref, a.Problem, a.Warnings)
		}
	}
}

func refused(t *testing.T, b markdown.Block) {
	if got := planned(t, b.Text)[0].Problem; got != strings.TrimSpace(b.Next) {
		t.Errorf("the answer is\n%s\nthe page shows\n%s", got, b.Next)
	}
}

// planned returns what the pods of a manifest would get.
func planned(t *testing.T, manifest string, flags ...string) []status.Answer {
	t.Helper()
	out, errs, _ := shell(`sluice plan -o json -f - --machine "`+madeUp+`" `+strings.Join(flags, " "), manifest)
	var pods []struct {
		Answers []status.Answer `json:"answers"`
	}
	if err := json.Unmarshal([]byte(out), &pods); err != nil || len(pods) != 1 || len(pods[0].Answers) == 0 {
		t.Fatalf("%v: %s", err, errs)
	}
	return pods[0].Answers
}

func isTOML(t *testing.T, b markdown.Block) {
	var into map[string]any
	if err := toml.Unmarshal([]byte(b.Text), &into); err != nil {
		t.Error(err)
	}
}
