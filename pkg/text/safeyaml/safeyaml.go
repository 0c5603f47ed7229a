// Package safeyaml decodes YAML that anybody may have written. The YAML library panics
// on some documents, for instance where a mapping is merged that has a mapping as a key
// ({<<: {? {a: b} : c}}); here they are errors.
package safeyaml

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

// Decode stores what a node holds in into, as [yaml.Node.Decode] does.
func Decode(node *yaml.Node, into any) (err error) {
	defer refuse(&err, node.Line)
	return node.Decode(into)
}

// Unmarshal stores what the first document of text holds in into, as [yaml.Unmarshal]
// does.
func Unmarshal(text []byte, into any) (err error) {
	defer refuse(&err, 1)
	return yaml.Unmarshal(text, into)
}

// refuse makes an error of a panic; it is deferred.
func refuse(err *error, line int) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("in what begins at line %d is something that can't be read, perhaps a key that is a mapping or a list: %v", line, p)
	}
}
