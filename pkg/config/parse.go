package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Error is one mistake in the file.
type Error struct {
	Line int    // 0 where it is in no line
	Key  string // "pools.list[0].cpus"; "" for the file as a whole
	Text string // what is wrong, and what is allowed
}

func (e Error) Error() string {
	text := e.Text
	if e.Key != "" {
		text = e.Key + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

// Errors are all mistakes in the file, in the order of lines, then of keys.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Parse reads sluice.yaml over the defaults: what the file leaves out keeps its
// default, and a list that it has replaces the default's. The error is Errors.
func Parse(data []byte) (*Config, error) {
	c := Default()
	d := decoder{lines: map[string]int{}}
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := reader.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, Errors{syntaxError(err)}
	}
	if err := reader.Decode(&more); err != nil && !errors.Is(err, io.EOF) {
		return nil, Errors{syntaxError(err)}
	}
	if more.Kind != 0 {
		d.errs = append(d.errs, Error{Line: more.Line, Text: "is a second document; a configuration is one"})
	}
	if document.Kind == yaml.DocumentNode {
		d.value(document.Content[0], reflect.ValueOf(c).Elem(), "")
	}
	c.completeRules()
	d.check(c)
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b Error) int {
			return cmp.Or(a.Line-b.Line, strings.Compare(a.Key, b.Key))
		})
		return nil, d.errs
	}
	return c, nil
}

// syntaxError takes the line out of yaml.v3's "yaml: line 3: text".
func syntaxError(err error) Error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, err := fmt.Sscanf(text, "line %d: ", &line); err == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return Error{Line: line, Text: "not YAML: " + text}
}
