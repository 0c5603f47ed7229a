package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// workflow is the part of a GitHub Actions workflow that the test needs.
type workflow struct {
	Jobs map[string]struct {
		Strategy struct {
			Matrix struct {
				Target []string `yaml:"target"`
			} `yaml:"matrix"`
		} `yaml:"strategy"`
		Steps []struct {
			Run string `yaml:"run"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

// The targets that the workflows run exist in the Makefile.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	files, err := filepath.Glob("../.github/workflows/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no workflows", err)
	}
	runs := regexp.MustCompile(`\bmake ([a-z0-9-]+|\$\{\{ matrix\.target \}\})`)
	var found int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				for _, m := range runs.FindAllStringSubmatch(step.Run, -1) {
					used := []string{m[1]}
					if strings.HasPrefix(m[1], "$") {
						used = job.Strategy.Matrix.Target
					}
					for _, target := range used {
						found++
						if !slices.Contains(targets, target) {
							t.Errorf("%s, job %s: the Makefile has no target %s", file, name, target)
						}
					}
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d uses of make found", found)
	}
}

// The forms for issues are YAML with everything that GitHub requires.
func TestIssueForms(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bug", "feature"} {
		text, err := os.ReadFile("../.github/ISSUE_TEMPLATE/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var form struct {
			Name, Description string
			Body              []struct {
				Type       string
				ID         string
				Attributes struct{ Label, Value string }
			}
		}
		if err := yaml.Unmarshal(text, &form); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s: the form lacks its name, description or body", name)
		}
		for _, field := range form.Body {
			if field.Type == "markdown" && field.Attributes.Value == "" || field.Type != "markdown" && (field.ID == "" || field.Attributes.Label == "") {
				t.Errorf("%s: an incomplete field: %+v", name, field)
			}
		}
	}
}
