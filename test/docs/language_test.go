package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// riddles matches phrases whose referent the reader has to guess, or which hide who acts. A
// sentence without them names the thing or the actor.
var riddles = regexp.MustCompile(`(?i)\b(?:of these\b|likewise|nothing (?:must|need|is to) be done|the same, |now and then|told\b|untold|in vain\b|so (?:is|are|does|do|has|have) (?:the|its|all|that|what|who)\b)`)

// findRiddles lists the riddles in a text, each with the words around it.
func findRiddles(text string) (found []string) {
	text = strings.Join(strings.Fields(text), " ")
	for _, at := range riddles.FindAllStringIndex(text, -1) {
		around := text[max(0, at[0]-60):min(len(text), at[1]+40)]
		found = append(found, fmt.Sprintf("%q in %q", text[at[0]:at[1]], around))
	}
	return found
}

// Documents, shipped files, help texts, log messages and errors contain no phrase whose meaning
// has to be guessed.
func TestNoRiddles(t *testing.T) {
	t.Parallel()
	report := func(where, text string) {
		for _, found := range findRiddles(text) {
			t.Errorf("%s: %s: name the thing or the actor instead", where, found)
		}
	}
	for _, p := range pages(t) {
		report(p.Name, regexp.MustCompile("`[^`\n]+`").ReplaceAllString(p.Prose, "``"))
	}
	for name, help := range commands {
		report("sluice "+name+" --help", help)
	}
	comment := regexp.MustCompile(`(?m)^\s*#`)
	checked := 0
	for _, dir := range []string{"configs", "pkg", "plugins", "topology"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir():
				if entry.Name() == "testdata" {
					return filepath.SkipDir
				}
				return nil
			}
			switch filepath.Ext(name) {
			case ".yaml", ".service", ".conf", ".toml":
				data, err := os.ReadFile(name)
				report(name, comment.ReplaceAllString(string(data), ""))
				return err
			case ".go":
				if !strings.HasSuffix(name, "_test.go") {
					checked++
					report(name, messages(t, name))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 100 {
		t.Errorf("only %d Go files checked", checked)
	}
}

// messages are the strings of a Go file that are meant for people: those with a space.
func messages(t *testing.T, name string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err == nil && strings.Contains(text, " ") {
			all.WriteString(text + "\n|\n") // no phrase spans two strings
		}
		return true
	})
	return all.String()
}

func TestFindRiddles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"Two of these\nare full.":                     1,
		"No action needed; Likewise the next.":        1,
		"It is told once, and nothing must be done.":  2,
		"Sluice logs the refusal and tries it again.": 0,
		"the same value":                              0,
	} {
		if got := findRiddles(text); len(got) != want {
			t.Errorf("%q has %q, want %d", text, got, want)
		}
	}
}
