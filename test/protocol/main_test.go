package protocol

import (
	"fmt"
	"os"
	"testing"
)

var sluice string // path of the binary, set by TestMain

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice")
	if err == nil {
		defer os.RemoveAll(dir)
		sluice, err = Build(dir, "plugins/sluice")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
