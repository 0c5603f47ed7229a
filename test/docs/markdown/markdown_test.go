package markdown

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	text := strings.ReplaceAll("# Title\n\nSay `it`.\n\n'''sh node\nls\n'''\n\n'''text\nfile\n'''\n\n'''sh\n'''\nno line between\n'''text\n'''\n\n| key | is |\n|---|---|\n| `a` | 1 |\n", "'''", "```")
	p, err := Parse("p.md", text)
	if err != nil {
		t.Fatal(err)
	}
	blocks := []Block{
		{Kind: "sh node", Line: 5, Text: "ls\n", Next: "file\n"},
		{Kind: "text", Line: 9, Text: "file\n"},
		{Kind: "sh", Line: 13},
		{Kind: "text", Line: 16},
	}
	if !reflect.DeepEqual(p.Blocks, blocks) {
		t.Errorf("blocks are %+v, want %+v", p.Blocks, blocks)
	}
	if got := p.Code(); !reflect.DeepEqual(got, []string{"it", "a"}) {
		t.Errorf("code is %q", got)
	}
	if got := p.Rows("key"); !reflect.DeepEqual(got, [][]string{{"`a`", "1"}}) {
		t.Errorf("rows are %q", got)
	}
	if got := p.Anchors(); !reflect.DeepEqual(got, []string{"title"}) {
		t.Errorf("anchors are %q", got)
	}
	if _, err := Parse("p.md", "text\n```sh\nls\n"); err == nil || err.Error() != "p.md:2: block without an end" {
		t.Error(err)
	}
}
