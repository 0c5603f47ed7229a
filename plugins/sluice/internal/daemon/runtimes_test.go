package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/runtime/inspect"
)

// AskRuntimes reports a runtime that accepts connections and never answers. It waits no longer
// than the timeout, and leaves no goroutine behind.
func TestSilentRuntime(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	socket := filepath.Join(root, "run/crio/crio.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var text strings.Builder
	log := logrus.New()
	log.SetOutput(&text)
	begun := time.Now()
	logRuntimes(t.Context(), root, log)
	if took := time.Since(begun); took > 10*inspect.Timeout { // only bounds the time if it hangs
		t.Errorf("it took %v", took)
	}
	if !strings.Contains(text.String(), "does not tell what it is") || !strings.Contains(text.String(), "socket=/run/crio/crio.sock") {
		t.Error(text.String())
	}
	if told := AskRuntimes(t.Context(), t.TempDir()); len(told) != 0 {
		t.Errorf("without a socket: %v", told)
	}
}
