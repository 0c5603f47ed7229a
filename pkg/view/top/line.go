package top

import (
	"strconv"
	"strings"
)

// tone is the meaning of a text, which a colour can repeat.
type tone int

const (
	plain tone = iota
	title
	good
	warn
	bad
	ownCores // CPUs of LSE containers
	ownCPUs  // CPUs of LSR containers
	reserved
	system
	external
	shared
	firstPool // the first of the tones for pools' own CPUs
)

// sgr returns a tone's colour (ECMA-48, select graphic rendition). It uses the eight colours
// that every terminal has, so that the terminal's theme determines their look.
func (t tone) sgr() string {
	switch t {
	case plain:
		return ""
	case title:
		return "1"
	case good:
		return "32"
	case warn:
		return "33"
	case bad:
		return "1;31"
	case ownCores:
		return "1;35"
	case ownCPUs:
		return "35"
	case reserved:
		return "1"
	case system:
		return "33"
	case external:
		return "31"
	case shared:
		return "36"
	}
	pools := []string{"32", "1;36", "1;33", "34", "1;32", "1;34"}
	return pools[int(t-firstPool)%len(pools)]
}

// line is a line of a frame. Text that does not fit is cut.
type line struct {
	left   int // free columns
	used   int
	spaces int // pending spaces, which are not written at the end of a line
	colour bool
	tone   tone // the tone in force
	text   strings.Builder
}

func (f *frame) line() *line { return &line{left: f.Width, colour: f.Colour} }

// put adds a text, escaped.
func (l *line) put(t tone, text string) {
	text = safe(text)
	text = text[:min(len(text), max(0, l.left))]
	if text == "" {
		return
	}
	l.left -= len(text)
	l.used += len(text)
	word := strings.TrimRight(text, " ")
	if word != "" {
		l.text.WriteString(strings.Repeat(" ", l.spaces))
		l.spaces = 0
		l.set(t)
		l.text.WriteString(word)
	}
	l.spaces += len(text) - len(word)
}

// room adds spaces up to a column.
func (l *line) room(column int) { l.put(plain, strings.Repeat(" ", max(0, column-l.used))) }

func (l *line) set(t tone) {
	if !l.colour || t == l.tone {
		return
	}
	if l.tone.sgr() != "" {
		l.text.WriteString("\x1b[m")
	}
	if code := t.sgr(); code != "" {
		l.text.WriteString("\x1b[" + code + "m")
	}
	l.tone = t
}

func (l *line) String() string {
	l.set(plain)
	return l.text.String()
}

// words puts texts one after another, on as many lines as they need.
func (f *frame) words(indent int, items []item) []string {
	l := f.line()
	var lines []string
	for i, it := range items {
		if i > 0 && len(safe(it.text))+len(gap) > l.left && l.used > indent {
			lines = append(lines, l.String())
			l = f.line()
			l.room(indent)
		} else if i > 0 {
			l.put(plain, gap)
		}
		l.put(it.tone, it.text)
	}
	return append(lines, l.String())
}

// fold puts a sentence on as many lines as it needs, up to a maximum.
func (f *frame) fold(t tone, text string, most int) []string {
	var lines []string
	for rest := safe(text); rest != "" && len(lines) < most; {
		end := len(rest)
		if end > f.Width {
			end = f.Width
			if space := strings.LastIndexByte(rest[:end+1], ' '); space > 0 && len(lines) < most-1 {
				end = space
			}
		}
		l := f.line()
		l.put(t, rest[:end])
		lines, rest = append(lines, l.String()), strings.TrimLeft(rest[end:], " ")
	}
	return lines
}

const gap = "  "

// item is a text with its tone.
type item struct {
	tone tone
	text string
}

// safe returns a text as printable ASCII, with all other characters escaped as in Go. Applied
// to its own result it changes nothing.
func safe(text string) string {
	ok := true
	for i := range len(text) {
		ok = ok && text[i] >= ' ' && text[i] <= '~'
	}
	if ok {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if r >= ' ' && r <= '~' {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// fit returns a text in exactly that many columns. It cuts the middle, because names differ at
// their ends.
func fit(text string, width int) string {
	text, width = safe(text), max(0, width)
	if len(text) > width {
		if width < 3 {
			return text[:max(0, width)]
		}
		tail := (width - 1) / 2
		text = text[:width-1-tail] + "~" + text[len(text)-tail:]
	}
	return text + strings.Repeat(" ", width-len(text))
}

// right returns a text aligned to the right in that many columns.
func right(text string, width int) string {
	return strings.Repeat(" ", max(0, width-len(text))) + text
}

// bar draws a share of 0 to 1 as a bar of that length, with marks at the given shares.
func bar(share float64, length int, marks ...float64) string {
	cells := []byte(strings.Repeat(".", length))
	at := func(share float64) int { return int(min(max(share, 0), 1)*float64(length) + 0.5) }
	for i := range at(share) {
		cells[i] = '#'
	}
	for _, m := range marks {
		cells[min(at(m), length-1)] = '|'
	}
	return "[" + string(cells) + "]"
}
