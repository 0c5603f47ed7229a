package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/docs/markdown"
)

// The messages that docs/runbook.md quotes are those of the program: each part of a quote
// between "..." and the placeholders N and M is in the source, a test or a golden file.
func TestRunbookMessages(t *testing.T) {
	t.Parallel()
	texts := programTexts(t)
	page := find(t, filepath.Join("docs", "runbook.md"))
	variable := regexp.MustCompile(`\.\.\.|\b[NM]\b%?`)
	checked := 0
	for _, head := range []string{"you see", "the message has", "the reason has, or you want", "cause", "`sluice restore` says"} {
		for _, row := range page.Rows(head) {
			for _, quote := range markdown.Spans(row[0]) {
				if !strings.Contains(quote, " ") {
					continue // a key or a field
				}
				checked++
				for _, part := range variable.Split(quote, -1) {
					if part = strings.Join(strings.Fields(part), " "); !strings.Contains(texts, part) {
						t.Errorf("%q: the program says %q nowhere", quote, part)
					}
				}
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d messages found", checked)
	}
}

// programTexts are the product's source, tests and golden files, with one space for each run of
// white space.
func programTexts(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"pkg", "plugins"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !slices.Contains([]string{".go", ".golden"}, filepath.Ext(name)) {
				return err
			}
			data, err := os.ReadFile(name)
			all.WriteString(strings.Join(strings.Fields(string(data)), " ") + "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
