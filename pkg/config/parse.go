package config

import (
	"fmt"
	"strings"
)

// Error is one mistake in the file.
type Error struct {
	Line int    // 0 if the mistake is in no line
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

// Errors holds all mistakes in the file, sorted by line, then by key.
type Errors []Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Parse reads sluice.yaml over the defaults: keys that the file omits keep their defaults, and
// a list in the file replaces the default list. The error has type Errors.
func Parse(data []byte) (*Config, error) {
	node, err := Document(data)
	if err != nil {
		return nil, err
	}
	return ParseNode(node)
}

// syntaxError extracts the line from yaml.v3's "yaml: line 3: text".
func syntaxError(err error) Error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if _, err := fmt.Sscanf(text, "line %d: ", &line); err == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	return Error{Line: line, Text: "not YAML: " + text}
}
