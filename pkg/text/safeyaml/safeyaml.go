// Package safeyaml decodes YAML that anybody may have written. The YAML library panics
// on some documents, for instance where a mapping is merged that has a mapping as a key
// ({<<: {? {a: b} : c}}); here they are errors.
package safeyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"

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

// Documents returns the documents of a stream.
func Documents(text []byte) (documents []*yaml.Node, err error) {
	defer refuse(&err, 1)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		documents = append(documents, &document)
	}
}

// Encode writes documents as a stream, indented by two spaces.
func Encode(documents []*yaml.Node) (text []byte, err error) {
	defer refuse(&err, 1)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	const indent = 2
	encoder.SetIndent(indent)
	for _, document := range documents {
		if err := encoder.Encode(document); err != nil {
			return nil, err
		}
	}
	err = encoder.Close()
	return out.Bytes(), err
}

// refuse makes an error of a panic; it is deferred.
func refuse(err *error, line int) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("in what begins at line %d is something that can't be read, perhaps a key that is a mapping or a list: %v", line, p)
	}
}
