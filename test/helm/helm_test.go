// Package helm checks the chart in configs/helm/sluice with helm itself, and renders the plain
// manifests in configs/kubernetes from it.
package helm

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root  = "../../"
	chart = root + "configs/helm/sluice"
)

var update = flag.Bool("update", false, "write the golden files and the manifests anew")

// programs is the folder with sluice and sluice-kube.
func programs() string {
	return filepath.Join(os.TempDir(), fmt.Sprint("sluice-helm-test-", os.Getpid()))
}

// TestMain builds the programs of the image.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		defer os.RemoveAll(programs())
		build := exec.Command("go", "build", "-o", programs()+"/", "./plugins/sluice", "./plugins/sluice-kube")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
			return 1
		}
		return m.Run()
	}())
}

// helm runs the program that the Makefile builds, with no configuration of the user's.
func helm(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	program, err := filepath.Abs(root + "bin/tools/helm")
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG=/dev/null")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); os.IsNotExist(err) {
		t.Fatalf("%v: run make bin/tools/helm", err)
	}
	return stdout.String(), stderr.String(), err
}

// template is what helm template prints, without the names of the templates: the policies, which
// are files of configs/kubernetes, and the rest.
func template(t *testing.T, chart, release, namespace string, args ...string) (rest, policies string) {
	t.Helper()
	out, errs, err := helm(t, append([]string{"template", release, chart, "--namespace", namespace}, args...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	for document := range strings.SplitSeq("\n"+out, "\n---\n") {
		source, text, _ := strings.Cut(document, "\n")
		switch text = "---\n" + strings.TrimRight(text, "\n") + "\n"; {
		case source == "":
		case strings.HasSuffix(source, "/policies.yaml"):
			policies += text
		default:
			rest += text
		}
	}
	return rest, policies
}

func render(t *testing.T, release, namespace string, args ...string) string {
	t.Helper()
	rest, _ := template(t, chart, release, namespace, args...)
	return rest
}

// cases are the golden renders, by name.
func cases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("values are %q, %v", files, err)
	}
	all := map[string]string{}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), ".values.yaml")] = render(t, "sluice", "sluice", "--values", file)
	}
	return all
}

// golden compares text with a file, or writes it there.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs from what the chart renders: look at it, then run make manifests\n%s", file, text)
	}
}

func TestRenders(t *testing.T) {
	t.Parallel()
	for name, text := range cases(t) {
		golden(t, "testdata/"+name+".golden.yaml", text)
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		out, errs, err := helm(t, "lint", "--strict", "--quiet", "--kube-version", "1.34.0", chart, "--values", file)
		if err != nil || strings.Contains(out, "[") {
			t.Errorf("%s: %v\n%s%s", file, err, out, errs)
		}
	}
}

// The manifests are what the chart renders, below a head of their own.
func TestManifests(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"sluice":         {"--no-hooks", "--set", "configRollout=reload"},
		"sluice-restore": {"--no-hooks", "--set", "mode=restore,maxUnavailable=100%"},
	} {
		const mark = "# What follows is rendered by \"make manifests\" from configs/helm/sluice.\n"
		file := root + "configs/kubernetes/" + strings.TrimPrefix(name, "sluice-") + ".yaml"
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, _, found := strings.Cut(string(text), mark)
		if !found {
			t.Fatalf("%s lacks the line %q", file, mark)
		}
		golden(t, file, head+mark+render(t, name, name, args...))
	}
}

// Each rendered configuration is one that Sluice accepts.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, text := range cases(t) {
		checked += checkConfigurations(t, name, text)
	}
	if checked < 5 {
		t.Errorf("only %d configurations were checked", checked)
	}
}

// checkConfigurations runs "sluice check" on each sluice.yaml in rendered text, and counts them.
func checkConfigurations(t *testing.T, where, text string) int {
	t.Helper()
	checked := 0
	for _, o := range objects(t, text) {
		if o.Kind != "ConfigMap" || o.Data["sluice.yaml"] == "" {
			continue
		}
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte(o.Data["sluice.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(filepath.Join(programs(), "sluice"), "check", "-f", file).CombinedOutput(); err != nil {
			t.Errorf("%s, %s: %v: %s\n%s", where, o.Metadata.Name, err, out, o.Data["sluice.yaml"])
		}
		checked++
	}
	return checked
}

// Each container runs a command with flags that there are.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	containers := regexp.MustCompile(`(?m)^ +(?:command: \[/usr/bin/([a-z-]+)\]\n +)?args: \[(.*)\]$`)
	seen := map[string]bool{}
	for name, text := range cases(t) {
		for _, m := range containers.FindAllStringSubmatch(text, -1) {
			program, words := cmp.Or(m[1], "sluice"), strings.Split(m[2], ", ")
			seen[program+" "+words[0]] = true
			help, err := exec.Command(filepath.Join(programs(), program), words[0], "--help").Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range words[1:] {
				if strings.HasPrefix(word, "--") && !strings.Contains(string(help), " "+word+" ") {
					t.Errorf("%s: %s %s has no flag %s", name, program, words[0], word)
				}
			}
		}
	}
	if len(seen) != 5 {
		t.Errorf("the containers run only %v", seen)
	}
}

// The plugin's socket admits the user and the group with which the pods of sluice-kube run, and the
// flag has the same user as its default.
func TestKubeUser(t *testing.T) {
	t.Parallel()
	text := cases(t)["kube"]
	users := regexp.MustCompile(`(?:--kube-uid, "|runAsGroup: |runAsUser: )([1-9][0-9]*)`).FindAllStringSubmatch(text, -1)
	if len(users) < 8 {
		t.Fatalf("only these users and groups were found: %q", users)
	}
	for _, m := range users {
		if m[1] != users[0][1] {
			t.Errorf("%s differs from %s", m[0], users[0][1])
		}
	}
	help, err := exec.Command(filepath.Join(programs(), "sluice"), "run", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := "(default " + users[0][1] + ")"; !strings.Contains(string(help), want) {
		t.Errorf("no flag of sluice run has %s, the user of sluice-kube in the chart", want)
	}
}

// object has the parts of a rendered object that the tests look at.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Groups   []any
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
}

type podSpec struct {
	NodeSelector map[string]string
	Affinity     struct {
		NodeAffinity struct {
			Required struct {
				NodeSelectorTerms []struct{ MatchExpressions []expression }
			} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		}
	}
}

type expression struct {
	Key, Operator string
	Values        []string
}

func objects(t *testing.T, text string) []object {
	t.Helper()
	var all []object
	for document := range strings.SplitSeq(text, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if o.Kind == "" {
			t.Fatalf("an object without a kind:\n%s", document)
		}
		all = append(all, o)
	}
	return all
}

// A packaged chart is complete: the alerts, which are elsewhere in the repository, are in it.
func TestPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, errs, err := helm(t, "package", chart, "--destination", dir); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	packed := filepath.Join(dir, "sluice-0.0.0.tgz")
	for name, want := range cases(t) {
		if out, _ := template(t, packed, "sluice", "sluice", "--values", "testdata/"+name+".values.yaml"); out != want {
			t.Errorf("%s: the packaged chart renders something else:\n%s", name, out)
		}
	}
	alerts, err := os.ReadFile(root + "configs/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want struct{ Groups []any }
	if err := yaml.Unmarshal(alerts, &want); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, cases(t)["metrics"]) {
		if o.Kind == "PrometheusRule" && len(o.Spec.Groups) != len(want.Groups) {
			t.Errorf("the rule has %d groups, the alerts %d", len(o.Spec.Groups), len(want.Groups))
		}
	}
}
