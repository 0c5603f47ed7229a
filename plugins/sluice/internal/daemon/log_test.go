package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/config"
)

// Each log entry is one line, whatever names it contains.
func TestHostileLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		cfg := config.Default()
		cfg.Log.Format, cfg.Log.File = config.LogFormat(format), filepath.Join(t.TempDir(), "log")
		log, err := newLog(cfg, "")
		if err != nil {
			t.Fatal(err)
		}
		log.WithFields(logrus.Fields{"container": evil, "why": "\n" + evil}).WithError(os.ErrExist).Warn("Container refused")
		text, err := os.ReadFile(cfg.Log.File)
		if err != nil || strings.Count(string(text), "\n") != 1 || bytes.ContainsAny(text, "\x1b\a\r\x00") {
			t.Errorf("%s: %v: %q", format, err, text)
		}
	}
}

// evil is a name that must never reach a terminal: it sets the title, clears the screen with
// 7-bit and 8-bit sequences, switches to right-to-left text, and starts new lines.
const evil = "team/\x1b]0;owned\a\x1b[2J\u009b2J\u202eweb\u2028\r\nroot/pod\t\x00/x\xff"
