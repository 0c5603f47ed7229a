package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/protocol"
)

func synthetic(t *testing.T) node {
	t.Helper()
	binary, err := protocol.Build(t.TempDir(), "plugins/sluice")
	if err != nil {
		t.Fatal(err)
	}
	n, err := startSynthetic(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// TestPerform runs the whole demo on the made-up machine: 16 cores of two threads on two nodes.
func TestPerform(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := perform(t.Context(), synthetic(t), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, want := range []string{
		"ls LS none 0-31 0-1 none 0-31 0-1 none",
		"be BE class.sluice.dev: BE 0-31 0-1 none 0-31 0-1 none",
		"lse LSE class.sluice.dev: LSE 0-31 0-1 6 CPUs 0-2,16-18 0 none",
		"ls-late LS none 0-31 0-1 none 3-15,19-31 0-1 none",
		"greedy LSR class.sluice.dev: LSR 0-31 0-1 26 CPUs refused",
		"lsr LSR class.sluice.dev: LSR 0-31 0-1 6 CPUs 0-2,16-18 0 none",
		"system 0-31 3-15,19-31",
		"sluice: container demo/greedy/main: 26 CPUs of its own would leave 0",
		"$ sluice status",
		"demo/lsr/main LSR 0-2,16-18 (6 CPUs)",
		"$ sluice explain demo/lsr",
		"class LSR annotation class.sluice.dev",
	} {
		if !strings.Contains(words(out.String()), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := perform(ctx, synthetic(t), &strings.Builder{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
