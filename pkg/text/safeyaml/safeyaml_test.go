package safeyaml

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// panics is YAML that makes the library panic with "hash of unhashable type".
const panics = "{<<: {? {a: b} : c}}"

func TestPanicIsAnError(t *testing.T) {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(panics), &node); err != nil {
		t.Fatal(err)
	}
	var into map[string]yaml.Node
	for name, err := range map[string]error{
		"Decode":    Decode(&node, &into),
		"Unmarshal": Unmarshal([]byte(panics), &into),
	} {
		if err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAsTheLibrary(t *testing.T) {
	var into map[string]int
	if err := Unmarshal([]byte("{a: 1}"), &into); err != nil || into["a"] != 1 {
		t.Errorf("%v, %v", into, err)
	}
	if err := Unmarshal([]byte("{a: b}"), &into); err == nil {
		t.Error("text was taken for a number")
	}
}

func TestDocumentsComeBack(t *testing.T) {
	const text = "# first\na: [1, {b: c}] # one\n---\nd:\n  - e\n"
	documents, err := Documents([]byte(text))
	if err != nil || len(documents) != 2 {
		t.Fatalf("%d documents, %v", len(documents), err)
	}
	if got, err := Encode(documents); err != nil || string(got) != text {
		t.Errorf("%v, got\n%s", err, got)
	}
	if _, err := Documents([]byte("a: [\n")); err == nil {
		t.Error("an open list was taken")
	}
}

// TestEncodeReadsItsOutput has the library write a comment between a key and an empty mapping.
func TestEncodeReadsItsOutput(t *testing.T) {
	documents, err := Documents([]byte("a: # one\n  b: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	inner := documents[0].Content[0].Content[1]
	inner.Content, inner.HeadComment = nil, "# one"
	if text, err := Encode(documents); err == nil || !strings.Contains(err.Error(), "comments") {
		t.Errorf("%v, wrote\n%s", err, text)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(panics)
	f.Add("&a {b: *a}")
	f.Fuzz(func(_ *testing.T, text string) {
		var structured struct {
			Labels map[string]yaml.Node `yaml:"labels"`
			Others map[string]yaml.Node `yaml:",inline"`
		}
		_ = Unmarshal([]byte(text), &structured)
		var anything any
		_ = Unmarshal([]byte(text), &anything)
		if documents, err := Documents([]byte(text)); err == nil {
			_, _ = Encode(documents)
		}
	})
}
