// Package markdown parses pages of the documentation for its tests.
package markdown

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Page is a file of the documentation.
type Page struct {
	Name   string // path below the repository's root
	Text   string
	Prose  string // text without fenced blocks
	Blocks []Block
}

// Block is a fenced block.
type Block struct {
	Kind string // words behind the fence; the first is the language
	Line int
	Text string
	Next string // the text block right after it, "" if there is none
}

// Pages returns all pages of the repository.
func Pages(root string) ([]Page, error) {
	var all []Page
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
		p, err := Parse(rel, string(data))
		all = append(all, p)
		return err
	})
	if err == nil && len(all) < 6 {
		err = fmt.Errorf("%d pages found below %s", len(all), root)
	}
	return all, err
}

// Parse parses the text of a page.
func Parse(name, text string) (Page, error) {
	p := Page{Name: name, Text: text}
	var open *Block
	lastEnd := 0
	for i, line := range strings.Split(text, "\n") {
		fence, fenced := strings.CutPrefix(line, "```")
		switch {
		case fenced && open == nil:
			open = &Block{Kind: strings.TrimSpace(fence), Line: i + 1}
		case fenced:
			if n := len(p.Blocks); n > 0 && open.Kind == "text" && open.Line == lastEnd+2 {
				p.Blocks[n-1].Next = open.Text
			}
			p.Blocks = append(p.Blocks, *open)
			open, lastEnd = nil, i+1
		case open != nil:
			open.Text += line + "\n"
		default:
			p.Prose += line + "\n"
		}
	}
	if open != nil {
		return p, fmt.Errorf("%s:%d: block without an end", name, open.Line)
	}
	return p, nil
}

// Code lists the inline code of a page.
func (p *Page) Code() []string { return Spans(p.Prose) }

// Spans lists the inline code of a text.
func Spans(text string) []string {
	var spans []string
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		spans = append(spans, m[1])
	}
	return spans
}

// Rows lists a page's table rows as cells, from tables whose header begins with one of the given
// cells.
func (p *Page) Rows(headers ...string) [][]string {
	var rows [][]string
	under := false
	for line := range strings.Lines(p.Prose) {
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

// Anchors returns the anchors that GitHub gives a page's headings.
func (p *Page) Anchors() []string {
	var all []string
	for line := range strings.Lines(p.Prose) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			all = append(all, strings.ReplaceAll(kept, " ", "-"))
		}
	}
	return all
}
