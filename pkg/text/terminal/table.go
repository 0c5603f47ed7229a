// Package terminal formats text for a terminal: tables that keep to a width, lines, and JSON, all of
// them without characters that a terminal would interpret.
package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Columns is the width of text that is not wide.
const Columns = 80

// Unlimited is the width of wide text.
const Unlimited = 0

// narrowest is the smallest width to which a column shrinks before its text wraps.
const narrowest = 6

// Table writes rows in aligned columns, at most width wide. Text that does not fit its column
// wraps, so that nothing is lost.
func Table(w *strings.Builder, indent string, width int, rows [][]string) {
	for _, row := range rows {
		for i := range row {
			row[i] = Printable(row[i])
		}
	}
	widths := columnWidths(rows)
	if width != Unlimited {
		narrow(widths, width-len(indent))
	}
	for _, row := range rows {
		cells := make([][]string, len(row))
		height := 1
		for i, text := range row {
			cells[i] = Fold(text, widths[i])
			height = max(height, len(cells[i]))
		}
		for y := range height {
			var line strings.Builder
			line.WriteString(indent)
			for i, cell := range cells {
				text := ""
				if y < len(cell) {
					text = cell[y]
				}
				line.WriteString(text)
				if i < len(cells)-1 {
					line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+len(gap)))
				}
			}
			w.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
}

// Printable replaces characters that a terminal would interpret, because pods choose some
// texts.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

const gap = "  "

func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	return widths
}

// narrow shrinks the widest column until all columns fit.
func narrow(widths []int, width int) {
	total := len(gap) * (len(widths) - 1)
	for _, n := range widths {
		total += n
	}
	for ; total > width; total-- {
		widest := 0
		for i, n := range widths {
			if n > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= narrowest {
			return
		}
		widths[widest]--
	}
}

// Fold breaks text into lines of at most width characters: preferably at a space, otherwise
// after a comma, slash or hyphen, otherwise anywhere.
func Fold(text string, width int) []string {
	var lines []string
	rest := []rune(text)
	for len(rest) > width {
		end := breakAt(rest, width)
		lines = append(lines, strings.TrimRight(string(rest[:end]), " "))
		rest = rest[end:]
	}
	return append(lines, string(rest))
}

func breakAt(text []rune, width int) int {
	for i := width; i > 0; i-- { // the space may be just beyond the width
		if text[i] == ' ' {
			return i + 1
		}
	}
	for i := width; i > 1; i-- {
		if strings.ContainsRune(",/-", text[i-1]) {
			return i
		}
	}
	return width
}
