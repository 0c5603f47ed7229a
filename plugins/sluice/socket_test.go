package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/pkg/view/statusapi"
)

// Only the owner may use the status socket.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "sluice")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	dir = filepath.Join(dir, "run")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- statusapi.Serve(ctx, filepath.Join(dir, "s"), plugin{}) }()
	for client := statusapi.NewClient(filepath.Join(dir, "s")); ; {
		if _, err := client.Status(); err != nil && strings.Contains(err.Error(), "shutting down") {
			break // it answers
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	for name, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, "s"): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v: %v", name, info.Mode(), want, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
