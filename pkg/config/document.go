package config

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Document reads the one YAML document of a file; it returns nil for an empty file. The error
// has type Errors.
func Document(data []byte) (*yaml.Node, error) {
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := reader.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, Errors{syntaxError(err)}
	}
	if err := reader.Decode(&more); err != nil && !errors.Is(err, io.EOF) {
		return nil, Errors{syntaxError(err)}
	}
	if more.Kind != 0 {
		return nil, Errors{{Line: more.Line, Text: "is a second document; there is to be one"}}
	}
	if document.Kind != yaml.DocumentNode {
		return nil, nil
	}
	return document.Content[0], nil
}

// ParseNode reads a configuration that is part of another document; mistakes have the lines of
// that document. The error has type Errors.
func ParseNode(node *yaml.Node) (*Config, error) {
	c := Default()
	d := decoder{lines: map[string]int{}}
	if node != nil {
		d.value(node, reflect.ValueOf(c).Elem(), "")
	}
	c.completeRules()
	d.check(c)
	if err := d.sorted(); err != nil {
		return nil, err
	}
	return c, nil
}

// Fail records a mistake in the value at a key such as "pods[0].load.cpu".
type Fail func(key, format string, args ...any)

// Decode reads a document of another kind into the value that into points to, by its yaml tags
// and as strictly as a configuration. check then looks for mistakes that the types don't
// exclude. The error has type Errors.
func Decode(node *yaml.Node, into any, check func(Fail)) error {
	d := decoder{lines: map[string]int{}}
	d.value(node, reflect.ValueOf(into).Elem(), "")
	check(d.fail)
	return d.sorted()
}

// sorted returns the recorded mistakes in order, nil if there are none.
func (d *decoder) sorted() error {
	if len(d.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errs, func(a, b Error) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Key, b.Key))
	})
	return d.errs
}
