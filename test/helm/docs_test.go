package helm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// flatten lists the values below a key with their defaults, as the table of docs/chart.md does:
// lists, and mappings that are given as a whole, are values.
func flatten(key string, value any, into map[string]string) {
	below, ok := value.(map[string]any)
	if whole := slices.Contains([]string{"resources", "kube.podResources"}, key); !ok || whole || len(below) == 0 {
		text, _ := json.Marshal(value)
		if s, isText := value.(string); isText && s != "" {
			text = []byte(s)
		}
		into[key] = string(text)
		return
	}
	for name, v := range below {
		flatten(strings.TrimPrefix(key+"."+name, "."), v, into)
	}
}

// The table has every value, with its default.
func TestValuesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	flatten("", values, want)
	page, err := os.ReadFile(root + "docs/chart.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| value | default | meaning |\n")
	got := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([\\w.]+)` \\| `([^|]*)` \\| .+ \\|$").FindAllStringSubmatch(table, -1) {
		got[m[1]] = m[2]
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("docs/chart.md gives %s the default %q, and values.yaml %q", key, got[key], value)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("docs/chart.md has values that the chart doesn't have: %v", got)
	}
}

// block is a fenced block of a page.
type block struct{ where, kind, text string }

func blocks(t *testing.T) []block {
	t.Helper()
	pages, err := filepath.Glob(root + "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	for _, page := range append(pages, root+"README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range regexp.MustCompile("(?ms)^```([a-z ]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			all = append(all, block{fmt.Sprintf("%s, block %d", page, i+1), m[1], m[2]})
		}
	}
	return all
}

// The documentation's values are accepted, and so are the configurations in them.
func TestDocumentedValues(t *testing.T) {
	t.Parallel()
	found := 0
	for _, b := range blocks(t) {
		if b.kind != "yaml values" {
			continue
		}
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		text := render(t, "sluice", "sluice", "--values", file)
		checkConfigurations(t, b.where, text)
		found++
	}
	if found < 4 {
		t.Errorf("only %d blocks of values were found", found)
	}
}

// The documentation's commands have flags that there are, and the values that they set render.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	helps := map[string]string{}
	found := 0
	for _, b := range blocks(t) {
		for line := range strings.Lines(b.text) {
			words := strings.Fields(strings.NewReplacer("'", "", "|", "").Replace(line))
			if !strings.HasPrefix(b.kind, "sh ") || len(words) < 3 || words[0] != "helm" {
				continue
			}
			found++
			if helps[words[1]] == "" {
				out, errs, err := helm(t, words[1], "--help")
				if err != nil {
					t.Fatalf("%v: %s", err, errs)
				}
				helps[words[1]] = out
			}
			var set []string
			for i, word := range words {
				name, _, _ := strings.Cut(word, "=")
				if strings.HasPrefix(word, "--") && !regexp.MustCompile(name+`[ =]`).MatchString(helps[words[1]]) {
					t.Errorf("%s: helm %s has no flag %s", b.where, words[1], name)
				}
				if slices.Contains([]string{"--set", "--set-string"}, word) {
					set = append(set, word, words[i+1])
				}
			}
			if strings.Contains(line, "configs/helm/sluice") {
				render(t, words[2], "sluice", set...)
			}
		}
	}
	if found < 6 {
		t.Errorf("only %d commands were found", found)
	}
}
