// Package schema tests and generates the JSON schema of sluice.yaml.
package schema

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/topology/cpuset"
)

var update = flag.Bool("update", false, "write configs/sluice.schema.json anew")

const (
	root       = "../../../"
	schemaFile = root + "configs/sluice.schema.json"
)

// bounds returns the minimum and maximum of keys, which TestSchemaBounds compares with the parser.
// Keys whose bounds depend on other keys are left out.
func bounds() map[string][2]string {
	return map[string][2]string{
		"memory.bePageCachePercent":            {"0", "100"},
		"control.burst.maxPercent":             {"100", "10000"},
		"control.demotion.stepPercent":         {"1", "90"},
		"control.memory.headroomPercent":       {"1", "50"},
		"control.batch.floorPercent":           {"0", ""},
		"control.cache.stepPercent":            {"1", ""},
		"control.cache.maxMBps":                {"0", ""},
		"control.eviction.satisfactionPercent": {"0", "100"},
		"control.offer.cpuMarginPercent":       {"0", "100"},
		"control.offer.memoryMarginPercent":    {"0", "100"},
		"rdt.maxMBps":                          {"0", ""},
	}
}

// schemaOf returns the JSON schema, generated from the types, their comments and the defaults.
func schemaOf(t *testing.T) *jsonschema.Schema {
	t.Helper()
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", ExpandedStruct: true, DoNotReference: true, RequiredFromJSONSchemaTags: true, Anonymous: true, Mapper: typeSchema,
		Namer: func(t reflect.Type) string { return t.String() }, // there are several types named Config
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	for _, folder := range []string{"./pkg/config", "./pkg/decide/control", "./pkg/workload/annotation"} {
		if err := r.AddGoComments("github.com/sluice-dev/sluice", folder); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	s := r.Reflect(&config.Config{})
	s.Title, s.ID = "sluice.yaml", ""
	s.Description = "The configuration of Sluice; docs/config.md tells more. What no schema can tell, sluice check does."
	for _, v := range config.Values(config.Default()) {
		if !strings.Contains(v.Key, "[") {
			if p := property(s, v.Key); p != nil && v.Text != "" && !strings.HasPrefix(v.Key, "classes.") {
				p.Default = typed(p, v.Text)
			}
		}
	}
	for key, b := range bounds() {
		p := property(s, key)
		if p == nil {
			t.Fatalf("there is no %s", key)
		}
		p.Minimum, p.Maximum = json.Number(b[0]), json.Number(b[1])
	}
	return s
}

func typed(p *jsonschema.Schema, text string) any {
	switch p.Type {
	case "integer":
		return json.Number(text)
	case "boolean":
		return text == "true"
	case "array":
		if text == "" {
			return []string{}
		}
		return strings.Split(text, ", ")
	}
	return text
}

// property returns the schema of a key.
func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	for name := range strings.SplitSeq(key, ".") {
		if s == nil || s.Properties == nil {
			return nil
		}
		s, _ = s.Properties.Get(name)
	}
	return s
}

// text returns the schema of a scalar that the parser accepts by its text.
func text(pattern string) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string", Pattern: pattern}, {Type: "number"}}}
}

func anyText() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}

// typeSchema returns the schema of a type that is parsed from text.
func typeSchema(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string", Pattern: `^[+-]?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+$|^[+-]?0$`}, {Const: 0}}}
	case reflect.TypeFor[annotation.Set]():
		given := jsonschema.NewProperties()
		for _, key := range givenKeys() {
			given.Set(key, &jsonschema.Schema{AnyOf: append(anyText().AnyOf, &jsonschema.Schema{Type: "object"})})
		}
		return &jsonschema.Schema{Type: "object", Properties: given, AdditionalProperties: jsonschema.FalseSchema}
	case reflect.TypeFor[cpuset.Set]():
		return text(`^\s*$|^[0-9,\s-]+$`)
	case reflect.TypeFor[config.PoolSize]():
		return text(`^\s*[0-9]+\s*%?\s*$|^[0-9,\s-]+$`)
	case reflect.TypeFor[config.Band]():
		return &jsonschema.Schema{Type: "string", Pattern: `^\s*[0-9]+\s*%?\s*-\s*[0-9]+\s*%?\s*$`}
	case reflect.TypeFor[control.CPUs](), reflect.TypeFor[control.Bytes]():
		return text(`^[+]?[0-9.]+([eE][0-9+-]+|[numkMGTPE]|[KMGTPE]i)?$`)
	case reflect.TypeFor[map[string]string]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: anyText()}
	}
	if words := choices(t); len(words) > 0 {
		return &jsonschema.Schema{Type: "string", Enum: words}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return anyText()
	}
	return nil
}

// choices returns the words that a type accepts, from its error for another word.
func choices(t reflect.Type) (words []any) {
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil
	}
	takes := func(word string) error {
		return reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(word))
	}
	err := takes("?")
	if err == nil {
		return nil
	}
	for _, word := range regexp.MustCompile(`[A-Za-z]+`).FindAllString(err.Error(), -1) {
		if takes(word) == nil {
			words = append(words, word)
		}
	}
	if t == reflect.TypeFor[control.Mode]() {
		words = append(words, "default")
	}
	return words
}

// givenKeys returns the keys that the configuration may give to pods, from the error for another
// key.
func givenKeys() (keys []string) {
	_, err := annotation.Give("?", "")
	for _, word := range regexp.MustCompile(`[a-z-]+`).FindAllString(err.Error(), -1) {
		if _, err := annotation.Give(word, ""); err == nil || !strings.Contains(err.Error(), "not a key") {
			keys = append(keys, word)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// The schema in configs/ is that of the types. It is generated by: go test -C test/external
// ./schema -update
func TestSchemaIsCurrent(t *testing.T) {
	var want bytes.Buffer
	e := json.NewEncoder(&want)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(schemaOf(t)); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Error("configs/sluice.schema.json is not that of the types; write it anew with go test -C test/external ./schema -update")
	}
}

func compiled(t *testing.T) *validator.Schema {
	t.Helper()
	s, err := validator.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valid validates a YAML text as an editor would.
func valid(t *testing.T, s *validator.Schema, text []byte) error {
	t.Helper()
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := validator.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	if instance == nil {
		instance = map[string]any{}
	}
	return s.Validate(instance)
}

// The shipped files, and every example in the documentation that the parser accepts, are valid.
func TestSchemaTakesWhatTheParserTakes(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	shippedText, err := os.ReadFile(root + "configs/sluice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	full, err := config.Default().YAML()
	if err != nil {
		t.Fatal(err)
	}
	texts := [][]byte{shippedText, full}
	docs, err := filepath.Glob(root + "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		page, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
			if _, err := config.Parse(block[1]); err == nil {
				texts = append(texts, block[1])
			}
		}
	}
	if len(texts) < 6 {
		t.Errorf("only %d texts", len(texts))
	}
	for _, text := range texts {
		if err := valid(t, s, text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	for _, text := range []string{"mode: of\n", "mod: on\n", "pools: {lists: []}\n", "driftInterval: 5\n", "control: {batch: {by: cpu}}\n", "roundUp: maybe\n", "classes: {BE: {cpuidentity: 1}}\n", "control: {burst: {maxPercent: 99}}\n"} {
		if _, err := config.Parse([]byte(text)); err == nil {
			t.Errorf("the parser takes %q", text)
		}
		if valid(t, s, []byte(text)) == nil {
			t.Errorf("the schema takes %q", text)
		}
	}
}

// The schema has exactly the keys that the parser accepts at each place. The parser lists its keys
// in the error for a key that resembles none of them.
func TestSchemaHasEveryKey(t *testing.T) {
	var walk func(s *jsonschema.Schema, within func(string) string, path string)
	walk = func(s *jsonschema.Schema, within func(string) string, path string) {
		_, err := config.Parse([]byte(within("{qqqqqqqqqqqq: 1}")))
		if err == nil {
			t.Fatalf("%s: the parser takes a key that can't be one", path)
		}
		list := regexp.MustCompile(`qqqqqqqqqqqq: is not a key .*; there are (.+)`).FindStringSubmatch(err.Error())
		if list == nil {
			t.Fatalf("%s: the parser doesn't list its keys: %v", path, err)
		}
		var inSchema []string
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			inSchema = append(inSchema, p.Key)
			inner, open, closing := p.Value, "{"+p.Key+": ", "}"
			switch {
			case inner.Type == "array":
				inner, open, closing = inner.Items, open+"[", "]"+closing
			case inner.Type == "object" && inner.Properties == nil:
				inner, open, closing = inner.AdditionalProperties, open+"{a: ", "}"+closing
			}
			// The keys of annotations come from the parser's error already, see givenKeys.
			if inner != nil && inner.Properties != nil && !slices.Equal(propertyNames(inner), givenKeys()) {
				walk(inner, func(text string) string { return within(open + text + closing) }, path+"."+p.Key)
			}
		}
		slices.Sort(inSchema)
		if known := strings.Split(list[1], ", "); !slices.Equal(known, inSchema) {
			t.Errorf("%s: the parser knows %v, the schema %v", path, known, inSchema)
		}
	}
	walk(schemaOf(t), func(text string) string { return text }, "")
}

func propertyNames(s *jsonschema.Schema) (names []string) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		names = append(names, p.Key)
	}
	slices.Sort(names)
	return names
}

// The parser accepts the minimum and maximum of the schema, and nothing beyond.
func TestSchemaBounds(t *testing.T) {
	t.Parallel()
	parses := func(key, value string) bool {
		text := value
		for _, name := range slices.Backward(strings.Split(key, ".")) {
			text = "{" + name + ": " + text + "}"
		}
		_, err := config.Parse([]byte(text))
		return err == nil
	}
	for key, b := range bounds() {
		for i, beyond := range []int{-1, 1} {
			if b[i] == "" {
				continue
			}
			n, err := json.Number(b[i]).Int64()
			if err != nil {
				t.Fatal(err)
			}
			if !parses(key, b[i]) {
				t.Errorf("%s: the parser refuses %s", key, b[i])
			}
			if over := strconv.FormatInt(n+int64(beyond), 10); parses(key, over) {
				t.Errorf("%s: the parser takes %s", key, over)
			}
		}
	}
}
