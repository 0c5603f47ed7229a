package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// JSON writes a value as indented JSON without characters that a terminal would interpret.
func JSON(w io.Writer, value any) error { return writeIndented(w, value, "  ") }

// JSONLine writes a value as one line of JSON without characters that a terminal would
// interpret.
func JSONLine(w io.Writer, value any) error { return writeIndented(w, value, "") }

// writeIndented also escapes unprintable characters, of which encoding/json escapes only the
// ASCII control characters.
func writeIndented(w io.Writer, value any, indent string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	var out strings.Builder
	for _, r := range text.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}
