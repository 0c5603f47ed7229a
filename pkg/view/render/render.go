// Package render writes what Sluice knows as text for people and as JSON: one function
// for each answer of the command line, from a value to a writer. Texts keep to 80 Columns
// where they are not to be wide, and hold nothing that a terminal would act on, whatever
// names pods bring.
package render

import (
	"io"
	"strings"
)

// flush writes a text that is complete.
func flush(w io.Writer, text *strings.Builder) error {
	_, err := io.WriteString(w, text.String())
	return err
}
