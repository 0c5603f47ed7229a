// Package safeyaml decodes YAML that anybody may have written. The YAML library panics
// on some documents, for instance where a mapping is merged that has a mapping as a key
// ({<<: {? {a: b} : c}}); here they are errors.
package safeyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

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

// Encode writes documents as a stream, indented by two spaces. The error says where reading the stream would
// yield something else, since the YAML library misplaces some comments.
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
	if err := encoder.Close(); err != nil {
		return nil, err
	}
	back, err := Documents(out.Bytes())
	if err != nil || !slices.EqualFunc(documents, back, same) {
		return nil, errMisplaced
	}
	return out.Bytes(), nil
}

var errMisplaced = errors.New("the YAML library can't write this with its comments; remove those that stand between a key and its value, and try again")

// same says whether two nodes hold the same, in whatever style and with whatever comments.
func same(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && a.Anchor == b.Anchor && a.ShortTag() == b.ShortTag() && slices.EqualFunc(a.Content, b.Content, same)
}

// refuse makes an error of a panic; it is deferred.
func refuse(err *error, line int) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("in what begins at line %d is something that can't be read, perhaps a key that is a mapping or a list: %v", line, p)
	}
}
