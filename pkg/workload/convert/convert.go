// Package convert turns the batch pods of a manifest into buyers of the node's batch resources, as the
// admission policies of configs/kubernetes/policies do for pods that are created. One table of cases tests
// both.
package convert

import (
	"bytes"
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/text/safeyaml"
)

// Target says what batch pods get.
type Target struct {
	CPU, Memory         string   // names of the resources: CPU in thousandths, memory in bytes
	PriorityClass       string   // the batch pods' priority class
	KeptPriorityClasses []string // priority classes that a batch pod may name itself
}

// Schemes lists the names under which nodes publish their batch resources, the default first.
func Schemes() []string { return []string{"sluice", "koordinator", "katalyst"} }

// For returns the target of one of the Schemes.
func For(scheme string) Target {
	t := Target{CPU: "batch.sluice.dev/cpu", Memory: "batch.sluice.dev/memory", PriorityClass: "sluice-batch", KeptPriorityClasses: []string{"sluice-batch-high", "sluice-mid", "sluice-free"}}
	switch scheme {
	case "koordinator":
		t.CPU, t.Memory = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
		t.KeptPriorityClasses = append(t.KeptPriorityClasses, "koord-mid", "koord-batch", "koord-free")
	case "katalyst":
		t.CPU, t.Memory = "resource.katalyst.kubewharf.io/reclaimed_millicpu", "resource.katalyst.kubewharf.io/reclaimed_memory"
	}
	return t
}

// Note says what happened to one object, or one of its containers.
type Note struct {
	Line   int    // of the manifest
	Object string // "Deployment etl/nightly"
	Text   string // continues a sentence that begins with the object
}

func (n Note) String() string { return fmt.Sprintf("line %d: %s %s", n.Line, n.Object, n.Text) }

// Manifest converts YAML or JSON documents. Without batch it converts pods whose class is BE, and with it
// also pods that name no class. Documents in which nothing changes stay as they are, byte for byte; in the
// others the order of keys and the comments stay. An error names the line.
func Manifest(text []byte, target Target, batch bool) ([]byte, []Note, error) {
	c := converter{target: target, batch: batch}
	var out bytes.Buffer
	line := 0
	for _, document := range split(text) {
		converted, err := c.document(document, line)
		if err != nil {
			return nil, nil, err
		}
		out.Write(converted)
		line += bytes.Count(document, []byte("\n"))
	}
	return out.Bytes(), c.notes, nil
}

// split cuts a stream before each line that begins a document. YAML 1.2 allows "---" at the beginning of a
// line nowhere else (section 9.1.2).
func split(text []byte) [][]byte {
	var documents [][]byte
	begin := 0
	for i := range text {
		if i > begin && text[i-1] == '\n' && marksDocument(text[i:]) {
			documents = append(documents, text[begin:i])
			begin = i
		}
	}
	return append(documents, text[begin:])
}

func marksDocument(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// converter converts the documents of one manifest.
type converter struct {
	target Target
	batch  bool
	notes  []Note
	line   int // lines before the document
}

// document converts one document that begins after that many lines. "..." may have more follow it.
func (c *converter) document(text []byte, line int) ([]byte, error) {
	c.line = line
	roots, err := safeyaml.Documents(text)
	if err != nil {
		return nil, fmt.Errorf("in the document that begins at line %d: %w", line+1, err)
	}
	changed := false
	for _, root := range roots {
		if len(root.Content) == 1 {
			changed = c.object(root.Content[0]) || changed
		}
	}
	if !changed {
		return text, nil
	}
	converted, err := safeyaml.Encode(roots)
	if err != nil {
		return nil, fmt.Errorf("the document that begins at line %d: %w", line+1, err)
	}
	if marksDocument(text) {
		converted = append([]byte("---\n"), converted...)
	}
	return converted, nil
}

// note records what happened to an object.
func (c *converter) note(at *yaml.Node, object, format string, args ...any) {
	c.notes = append(c.notes, Note{Line: c.line + at.Line, Object: object, Text: fmt.Sprintf(format, args...)})
}
