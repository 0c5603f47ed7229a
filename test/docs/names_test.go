package docs

import (
	"encoding"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/test/docs/markdown"
)

func find(t *testing.T, name string) markdown.Page {
	t.Helper()
	for _, p := range pages(t) {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("%s is not there", name)
	return markdown.Page{}
}

// docs/config.md has every key with its default, and with the comment on its field in the source
// as its meaning.
func TestConfigKeys(t *testing.T) {
	t.Parallel()
	defaults := map[string]string{}
	for _, v := range config.Values(config.Default()) {
		defaults[v.Key] = v.Text
	}
	comments := readSource(t, "pkg/config", "pkg/decide/control", "pkg/workload/annotation").comments
	var rows strings.Builder
	rows.WriteString("\n| key | default | meaning |\n|---|---|---|\n")
	for _, k := range collect(nil, "", reflect.ValueOf(config.Default()).Elem()) {
		meaning := comments[k.field]
		if !sentence.MatchString(meaning) {
			t.Errorf("%s: the comment on %s must be a sentence that makes sense alone, not %q", k.name, k.field, meaning)
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", k.name, k.defaultText(defaults), bars(meaning))
	}
	const begin, end = "<!-- keys, made by go test ./test/docs -run TestConfigKeys -update -->\n", "\n<!-- /keys -->\n"
	const name = "docs/config.md"
	text := string(read(t, name))
	before, rest, begins := strings.Cut(text, begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s lacks its marks", name)
	}
	switch want := before + begin + rows.String() + end + after; {
	case want == text:
	case *update:
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the source; write it anew with: go test ./test/docs -run TestConfigKeys -update", name)
	}
}

// configKey is a key of sluice.yaml.
type configKey struct {
	name  string // "pools.list[].name"
	field string // "config.Pool.Name"
	value reflect.Value
}

// defaultText returns the key's default as the page shows it; "" if only the meaning can say it.
func (k *configKey) defaultText(defaults map[string]string) string {
	_, isMode := reflect.TypeAssert[control.Mode](k.value)
	switch text := defaults[k.name]; {
	case strings.Contains(k.name, "[]"), k.value.Kind() == reflect.Map && k.value.Len() > 0:
		return ""
	case text != "":
		return "`" + text + "`"
	case isMode:
		return "`control.mode`"
	}
	return "none"
}

// collect lists the keys below a value.
func collect(keys []configKey, prefix string, v reflect.Value) []configKey {
	for i := range v.NumField() {
		of := v.Type().Field(i)
		name, options, _ := strings.Cut(of.Tag.Get("yaml"), ",")
		field, key := v.Field(i), prefix+name
		_, isText := reflect.TypeAssert[encoding.TextUnmarshaler](field.Addr())
		switch {
		case name == "-":
		case options == "inline":
			keys = collect(keys, prefix, field)
		case field.Kind() == reflect.Struct && !isText:
			keys = collect(keys, key+".", field)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			keys = collect(keys, key+"[].", reflect.New(field.Type().Elem()).Elem())
		default:
			keys = append(keys, configKey{key, v.Type().String() + "." + of.Name, field})
		}
	}
	return keys
}

// docs/annotations.md has every annotation key, and every example of a value is valid.
func TestAnnotationKeys(t *testing.T) {
	t.Parallel()
	rules := config.Default().Rules
	name := filepath.Join("docs", "annotations.md")
	p := find(t, name)
	var named []string
	for _, row := range p.Rows("key") {
		key := strings.TrimSuffix(markdown.Spans(row[0])[0], ".sluice.dev")
		named = append(named, key)
		for _, value := range markdown.Spans(row[1]) {
			err := rules.CheckSetting(key, value)
			if key == "grant" { // only pods have it
				pod := &workload.Pod{Annotations: map[string]string{"grant.sluice.dev": value}}
				_, _, err = rules.Request(annotation.Facts{}, pod, &workload.Container{Name: "main"})
			}
			if err != nil {
				t.Errorf("%s: %s: %s %v", name, key, value, err)
			}
		}
	}
	if want := annotation.Keys(); !slices.Equal(slices.Sorted(slices.Values(named)), slices.Sorted(slices.Values(want))) {
		t.Errorf("%s: the keys are %s, the page has %s", name, want, named)
	}
}

// docs/config.md has every key that only the configuration may set, with valid examples.
func TestGivenKeys(t *testing.T) {
	t.Parallel()
	rules := config.Default().Rules
	var named []string
	p := find(t, filepath.Join("docs", "config.md"))
	for _, row := range p.Rows("given key") {
		key := markdown.Spans(row[0])[0]
		named = append(named, key)
		for _, value := range markdown.Spans(row[1]) {
			if err := rules.CheckSetting(key, value); err != nil {
				t.Errorf("%s %s: %v", key, value, err)
			}
		}
	}
	if want := annotation.GivenKeys(); !slices.Equal(named, want) {
		t.Errorf("the keys are %s, the page has %s", want, named)
	}
}

// docs/annotations.md and the shipped configuration name every feature.
func TestFeatures(t *testing.T) {
	t.Parallel()
	var named []string
	p := find(t, filepath.Join("docs", "annotations.md"))
	for _, row := range p.Rows("feature") {
		named = append(named, markdown.Spans(row[0])[0])
	}
	if want := annotation.Features(); !slices.Equal(named, want) {
		t.Errorf("the features are %s, the page has %s", want, named)
	}
	for _, feature := range annotation.Features() {
		if !strings.Contains(string(read(t, "configs/sluice.yaml")), "\n#   "+feature+" ") {
			t.Errorf("configs/sluice.yaml lacks feature %s", feature)
		}
	}
}

// docs/design.md lists every package of the product, and the tests that it names exist.
func TestPackagesAndTests(t *testing.T) {
	t.Parallel()
	p := find(t, filepath.Join("docs", "design.md"))
	var listed []string
	for _, row := range p.Rows("package") {
		listed = append(listed, markdown.Spans(row[0])[0])
	}
	var tests strings.Builder
	packages := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, "_test.go") {
			data, err := os.ReadFile(name)
			tests.Write(data)
			return err
		}
		if first, _, _ := strings.Cut(dir, "/"); slices.Contains([]string{"pkg", "plugins", "topology"}, first) {
			packages[dir] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Sorted(maps.Keys(packages)); !slices.Equal(slices.Sorted(slices.Values(listed)), want) {
		t.Errorf("the packages are\n%s, the page has\n%s", want, listed)
	}
	for _, code := range p.Code() {
		if regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w+$`).MatchString(code) && !strings.Contains(tests.String(), "\nfunc "+code+"(") {
			t.Errorf("there is no %s", code)
		}
	}
}
