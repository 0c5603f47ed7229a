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

// The event loop writes no file on a disk, because a disk that hangs or is frozen would delay
// every pod. It writes to pkg/engine/journal, in the runtime folder, and passes data to the
// failsafe, the audit trail and the log, which have their own goroutines.
func TestLoopWritesNoFile(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, at := range fileWrites(t, name, nil) {
			t.Errorf("%s writes a file", at)
		}
	}
	const writing = "package p\nfunc f() { os.Rename(a, b); os.Stat(a) }"
	if found := fileWrites(t, "p.go", writing); len(found) != 1 {
		t.Errorf("the check finds %v in a source with one write", found)
	}
}

// fileWrites returns the places in a source at which package os changes files.
func fileWrites(t *testing.T, name string, source any) (found []token.Position) {
	t.Helper()
	writes := []string{"Chmod", "Create", "CreateTemp", "Mkdir", "MkdirAll", "MkdirTemp", "OpenFile", "Remove", "RemoveAll", "Rename", "Symlink", "Truncate", "WriteFile"}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if p, ok := s.X.(*ast.Ident); ok && p.Name == "os" && slices.Contains(writes, s.Sel.Name) {
				found = append(found, set.Position(n.Pos()))
			}
		}
		return true
	})
	return found
}
