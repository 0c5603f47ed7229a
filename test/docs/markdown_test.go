// Package docs checks that what the documentation says is so: commands run, and
// print what is shown; examples are accepted; keys, flags, files, packages and
// tests that are named exist.
//
// A fenced block's first word is its language, the others say what to do with it:
//
//	sh             run; a text block right after it is its output
//	sh agent       runs beside a sluice of its own, on a made-up machine without a runtime
//	sh make        names targets of the Makefile
//	sh node        for a node with a runtime: its syntax, flags and files are checked
//	yaml           a pod, which must be placed, or a configuration
//	yaml refused   a pod that is refused with the text block after it
//	toml           a runtime's configuration
//	http           a request to the status socket; a json block right after it is the answer
//	json           has fields of the answer, with values of the same kind
//	text           output, or a drawing
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// page is a file of the documentation.
type page struct {
	name   string // below the repository's root
	text   string
	prose  string // without fenced blocks
	blocks []block
}

// block is a fenced block.
type block struct {
	lang, mark string
	line       int
	text       string
	next       string // the text block right after it, "" where there is none
}

func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "testdata", "node_modules"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".md"):
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		all = append(all, parse(t, rel, string(data)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 6 {
		t.Fatalf("%d pages found", len(all))
	}
	return all
}

func parse(t *testing.T, name, text string) page {
	t.Helper()
	p := page{name: name, text: text}
	var open *block
	lastEnd := 0
	for i, line := range strings.Split(text, "\n") {
		fence, fenced := strings.CutPrefix(line, "```")
		switch {
		case fenced && open == nil:
			lang, mark, _ := strings.Cut(fence, " ")
			open = &block{lang: lang, mark: mark, line: i + 1}
		case fenced:
			if n := len(p.blocks); n > 0 && open.lang == "text" && open.line == lastEnd+2 {
				p.blocks[n-1].next = open.text
			}
			p.blocks = append(p.blocks, *open)
			open, lastEnd = nil, i+1
		case open != nil:
			open.text += line + "\n"
		default:
			p.prose += line + "\n"
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: block without an end", name, open.line)
	}
	return p
}

// code lists the inline code of a page.
func (p *page) code() []string {
	var spans []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(p.prose, -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// rows lists a page's table rows as cells, those below a header that begins with
// one of the given cells.
func (p *page) rows(headers ...string) [][]string {
	var rows [][]string
	under := false
	for line := range strings.Lines(p.prose) {
		text, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !isRow {
			under = false
			continue
		}
		cells := strings.Split(strings.TrimSuffix(text, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case slices.Contains(headers, cells[0]):
			under = true
		case under && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	return rows
}

func spans(cell string) []string {
	p := page{prose: cell}
	return p.code()
}

func TestLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(p.name), file)
			if file == "" {
				target = p.name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link to %s: %v", p.name, m[1], err)
			}
			if anchor != "" && !slices.ContainsFunc(all, func(q page) bool { return q.name == target && slices.Contains(anchors(q), anchor) }) {
				t.Errorf("%s: link to %s: no such heading", p.name, m[1])
			}
		}
	}
}

// anchors are a page's headings as GitHub links them.
func anchors(p page) []string {
	var all []string
	for line := range strings.Lines(p.prose) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			all = append(all, strings.ReplaceAll(kept, " ", "-"))
		}
	}
	return all
}
