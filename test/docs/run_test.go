package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/status"
)

// madeUp is the machine for which the pods of the documentation are planned.
const madeUp = "2 packages 8 cores 2 threads"

// TestMain sets these.
var (
	binDir   string            // the folder of a sluice built for this test
	commands map[string]string // the help of each of its commands, by the words after "sluice"
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "docs-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", filepath.Join(dir, "sluice"), "./plugins/sluice")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
			return 1
		}
		binDir = dir
		if commands, err = helps(""); err != nil {
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
		for _, b := range p.blocks {
			t.Run(fmt.Sprintf("%s:%d", p.name, b.line), func(t *testing.T) {
				t.Parallel()
				check, ok := map[string]func(*testing.T, block){
					"sh": runs, "sh agent": runsBesideAgent, "sh make": makes, "sh node": wouldRun,
					"yaml": accepted, "yaml refused": refused, "toml": isTOML,
					"text": func(*testing.T, block) {}, "http": isRequest, "json": isJSON,
				}[strings.TrimSpace(b.lang+" "+b.mark)]
				if !ok {
					t.Fatalf("blocks are not of kind %q", b.lang+" "+b.mark)
				}
				check(t, b)
			})
		}
	}
}

func runs(t *testing.T, b block) {
	out, errs, err := shell(b.text, "")
	if err != nil || errs != "" {
		t.Fatalf("%v: %s", err, errs)
	}
	if b.next != "" && out != b.next {
		t.Errorf("prints\n%s\nthe page shows\n%s", out, b.next)
	}
}

func makes(t *testing.T, b block) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.text) {
		target, ok := strings.CutPrefix(strings.TrimSpace(line), "make ")
		if !ok || !strings.Contains(string(makefile), "\n"+target+": ") {
			t.Errorf("%q is no target of the Makefile", line)
		}
	}
}

// wouldRun checks a block that this machine can't run.
func wouldRun(t *testing.T, b block) {
	if _, errs, err := shell(b.text, "", "-n"); err != nil {
		t.Errorf("%v: %s", err, errs)
	}
	for line := range strings.Lines(b.text) {
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

func accepted(t *testing.T, b block) {
	if !strings.Contains(b.text, "kind: ") {
		if _, err := config.Parse([]byte(b.text)); err != nil {
			t.Error(err)
		}
		return
	}
	for _, a := range planned(t, b.text) {
		if a.Error != "" || len(a.Warnings) > 0 {
			t.Errorf("%s: %s %q", a.Ref, a.Error, a.Warnings)
		}
	}
}

func refused(t *testing.T, b block) {
	if got := planned(t, b.text)[0].Error; got != strings.TrimSpace(b.next) {
		t.Errorf("the answer is\n%s\nthe page shows\n%s", got, b.next)
	}
}

// planned is what the pod of a manifest would get.
func planned(t *testing.T, manifest string) []status.Answer {
	t.Helper()
	out, errs, _ := shell(`sluice plan -o json -f - --machine "`+madeUp+`"`, manifest)
	var pods []struct {
		Answers []status.Answer `json:"answers"`
	}
	if err := json.Unmarshal([]byte(out), &pods); err != nil || len(pods) != 1 || len(pods[0].Answers) == 0 {
		t.Fatalf("%v: %s", err, errs)
	}
	return pods[0].Answers
}

func isTOML(t *testing.T, b block) {
	var into map[string]any
	if err := toml.Unmarshal([]byte(b.text), &into); err != nil {
		t.Error(err)
	}
}
