package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The loop writes no file of a disk: one that hangs or is frozen would hold up every
// pod. What it keeps goes through pkg/engine/journal, in the runtime folder, and to the
// failsafe, the audit trail and the log, which have goroutines of their own.
func TestLoopWritesNoFile(t *testing.T) {
	t.Parallel()
	byCommand := []string{"WriteSwitch"} // of `sluice batch`, not of the loop
	writes := []string{"Chmod", "Create", "CreateTemp", "Mkdir", "MkdirAll", "MkdirTemp", "OpenFile", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile"}
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	found := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if p, ok := s.X.(*ast.Ident); ok && p.Name == "os" && slices.Contains(writes, s.Sel.Name) {
					found++
					if !slices.Contains(byCommand, f.Name.Name) {
						t.Errorf("%s: %s calls os.%s", set.Position(n.Pos()), f.Name.Name, s.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if found == 0 {
		t.Error("not even WriteSwitch is found: this test looks in the wrong place")
	}
}
