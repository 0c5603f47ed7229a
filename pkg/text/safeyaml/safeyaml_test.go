package safeyaml

import (
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// panics makes the library panic: "hash of unhashable type".
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
	})
}
