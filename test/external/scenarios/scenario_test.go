// Package scenarios runs the text files of this folder: each is a machine, a
// configuration and what happens to pods on it, with what every container then
// has by the runtime's record. After every step the invariants are checked.
//
//	go test -C test/external ./scenarios -update   # write the results anew
package scenarios

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/sluice-dev/sluice/test/protocol"
)

func TestMain(m *testing.M) {
	update := flag.Bool("update", false, "write the scenarios' results anew")
	flag.Parse()
	if *update {
		flag.Set("rewrite", "true")
	}
	flag.Set("datadriven-quiet", "true")
	os.Exit(run(m))
}

// run builds the binary once for all scenarios.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = protocol.Build(dir, "plugins/sluice"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

var binary string // path of sluice, set by TestMain

func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios here", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".txt"), func(t *testing.T) {
			t.Parallel()
			s := newScenario(t)
			datadriven.RunTest(t, file, s.step)
		})
	}
}
