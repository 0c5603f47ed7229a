// Package docs checks that what the documentation says is so: commands run, and
// print what is shown; examples are accepted; keys, flags, files, packages and
// tests that are named exist.
//
// A fenced block's first word is its language, the others say what to do with it:
//
//	sh             run; a text block right after it is its output
//	sh agent       runs beside a sluice of its own, on a made-up machine without a runtime
//	sh node...     runs in test/docs/node; here its syntax, flags and files are checked
//	yaml           a pod, which must be placed, or a configuration
//	yaml refused   a pod that is refused with the text block after it
//	yaml values    values of the chart, which test/helm renders
//	toml           a runtime's configuration
//	http           a request to the status socket; a json block right after it is the answer
//	json           has fields of the answer, with values of the same kind
//	text           output, or a drawing
//
// What no test executes, and what is checked of it instead:
//
//	sh make        CI itself is make test: the Makefile has these targets
//	sh bench       takes minutes of a quiet machine: the packages have these benchmarks
//	sh cluster     needs a Kubernetes cluster, where test/kube/firstday runs those of
//	               docs/first-day.md and docs/migrate-static.md: as of sh node
//	sh remote      for another machine than the node: as of sh node
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/docs/markdown"
)

const root = "../.."

func pages(t *testing.T) []markdown.Page {
	t.Helper()
	all, err := markdown.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.Prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(p.Name), file)
			if file == "" {
				target = p.Name
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link to %s: %v", p.Name, m[1], err)
			}
			if anchor != "" && !slices.ContainsFunc(all, func(q markdown.Page) bool { return q.Name == target && slices.Contains(q.Anchors(), anchor) }) {
				t.Errorf("%s: link to %s: no such heading", p.Name, m[1])
			}
		}
	}
}

// The findings in docs/doctor.md are those of the doctor on such a node.
func TestDoctorPage(t *testing.T) {
	t.Parallel()
	words := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer(":", "", ",", "").Replace(text)), " ")
	}
	node := words(string(read(t, "pkg/doctor/testdata/ubuntu-24.04.golden")))
	p := find(t, filepath.Join("docs", "doctor.md"))
	shown := p.Blocks[slices.IndexFunc(p.Blocks, func(b markdown.Block) bool { return b.Kind == "text" })].Text
	findings := regexp.MustCompile(`(?m)^  (ok|note|warn|fail) `).Split(shown, -1)[1:]
	for _, finding := range findings {
		if !strings.Contains(node, words(finding)) {
			t.Errorf("doctor does not tell %q", words(finding))
		}
	}
	if len(findings) < 3 {
		t.Errorf("%d findings", len(findings))
	}
}

// The plan in docs/migrate-static.md is the beginning of one that the command prints.
func TestMigrationPage(t *testing.T) {
	t.Parallel()
	p := find(t, filepath.Join("docs", "migrate-static.md"))
	shown := p.Blocks[slices.IndexFunc(p.Blocks, func(b markdown.Block) bool { return b.Kind == "text" })].Text
	if plan := string(read(t, "pkg/view/render/testdata/migrate.golden")); !strings.HasPrefix(plan, shown) {
		t.Errorf("the page shows\n%s\nthe command prints\n%s", shown, plan)
	}
}
