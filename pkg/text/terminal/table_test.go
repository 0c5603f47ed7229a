package terminal

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	Table(&out, "  ", 32, [][]string{
		{"NAME", "CPUS", "NOTE"},
		{"a", "0-3", ""},
		{"namespace/pod", "0,2,4,6,8,10", "two words\x1b[2J"},
	})
	want := `  NAME      CPUS       NOTE
  a         0-3
  namespac  0,2,4,6,   two
  e/pod     8,10       words` + "\uFFFD[2J\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func withoutSpaces(text string) string { return strings.ReplaceAll(text, " ", "") }

// Fold removes nothing but spaces, and no line is too long.
func TestFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab ,-/é")), 0, 60, -1).Draw(t, "text")
		width := rapid.IntRange(1, 20).Draw(t, "width")
		lines := Fold(text, width)
		for _, line := range lines {
			if utf8.RuneCountInString(line) > width {
				t.Fatalf("%q is longer than %d", line, width)
			}
		}
		if got := withoutSpaces(strings.Join(lines, "")); got != withoutSpaces(text) {
			t.Fatalf("%q became %q", text, lines)
		}
	})
}

// A table of few columns has at most 80 columns of text, whatever it contains, and shows all of
// it.
func TestTableKeepsToItsWidth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "columns")
		cell := rapid.StringOfN(rapid.RuneFrom([]rune("abc ,-/\n\x1b")), 0, 300, -1)
		rows := rapid.SliceOfN(rapid.SliceOfN(cell, n, n), 1, 4).Draw(t, "rows")
		letters := 0
		for _, row := range rows {
			for _, text := range row {
				letters += strings.Count(text, "a") + strings.Count(text, "/")
			}
		}
		var out strings.Builder
		Table(&out, "    ", Columns, rows)
		if got := strings.Count(out.String(), "a") + strings.Count(out.String(), "/"); got != letters {
			t.Fatalf("%d of %d letters in\n%s", got, letters, out.String())
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if utf8.RuneCountInString(line) > Columns || strings.ContainsRune(line, '\x1b') {
				t.Fatalf("the line %q is too long or has an escape", line)
			}
		}
	})
}
