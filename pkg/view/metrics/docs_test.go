package metrics

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/metrics.md contains the table.
func TestDocs(t *testing.T) {
	t.Parallel()
	const file, from, to = "../../../docs/metrics.md", "<!-- made by go test ./pkg/view/metrics -update -->\n", "<!-- end -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), from)
	_, after, foundEnd := strings.Cut(rest, to)
	if !found || !foundEnd {
		t.Fatalf("%s has no place for the table", file)
	}
	golden(t, file, before+from+tables()+to+after)
}

func tables() string {
	var b strings.Builder
	for _, s := range sections() {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | meaning |\n|---|---|\n", s.title)
		for _, m := range s.metrics {
			name := m.name
			if len(m.labels) > 0 {
				name += "{" + strings.Join(m.labels, ",") + "}"
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, m.help)
		}
	}
	b.WriteString("\n")
	return b.String()
}
