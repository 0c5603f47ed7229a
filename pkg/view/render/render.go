// Package render writes Sluice's answers as text for people and as JSON, with one function for
// each kind of answer. Texts are 80 columns wide unless the caller asks for wide ones, and
// contain nothing that a terminal would interpret, whatever names pods have.
package render

import (
	"io"
	"strings"
)

// flush writes a complete text.
func flush(w io.Writer, text *strings.Builder) error {
	_, err := io.WriteString(w, text.String())
	return err
}
