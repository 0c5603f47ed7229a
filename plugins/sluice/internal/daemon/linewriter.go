package daemon

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/config"
)

// lineWriter writes lines of the log in a goroutine of its own: who logs must not wait
// for a disk that hangs or is frozen, nor for a journal on one. Where more lines wait
// than fit, further ones are lost, and their number is told.
type lineWriter struct {
	to    io.Writer
	log   *logrus.Logger
	lines chan []byte
	lost  atomic.Int64
	done  chan struct{}
}

// waitingLines is how many lines may wait: seconds of a busy log.
const waitingLines = 4096

// detach has a log written by a lineWriter. A terminal stays as it is: logrus writes
// for people there.
func detach(log *logrus.Logger) *lineWriter {
	w := &lineWriter{to: log.Out, log: log, lines: make(chan []byte, waitingLines), done: make(chan struct{})}
	go w.run()
	file, ok := log.Out.(*os.File)
	if _, err := unix.IoctlGetTermios(fdOf(file), unix.TCGETS); !ok || err != nil {
		log.SetOutput(w)
	}
	return w
}

func fdOf(file *os.File) int {
	if file == nil {
		return -1
	}
	return int(file.Fd())
}

// Write takes a line. It never waits, and never fails.
func (w *lineWriter) Write(line []byte) (int, error) {
	select {
	case w.lines <- append([]byte(nil), line...):
	default:
		w.lost.Add(1)
	}
	return len(line), nil
}

func (w *lineWriter) run() {
	defer close(w.done)
	for line := range w.lines {
		if line == nil {
			return
		}
		w.to.Write(line) //nolint:errcheck // there is nowhere to tell it
		if n := w.lost.Swap(0); n > 0 {
			e := logrus.NewEntry(w.log).WithField("lines", n)
			e.Time, e.Level, e.Message = time.Now(), logrus.WarnLevel, "Lines of the log are lost: what takes them was too slow"
			if text, err := w.log.Formatter.Format(e); err == nil {
				w.to.Write(text) //nolint:errcheck // there is nowhere to tell it
			}
		}
	}
}

// flush writes what waits, unless that takes long, and closes the log's file. Nothing is
// written after it.
func (w *lineWriter) flush() {
	const patience = 2 * time.Second
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case w.lines <- nil:
	case <-timeout.C:
		return
	}
	select {
	case <-w.done:
		if file, ok := w.to.(*os.File); ok && file != os.Stderr {
			file.Close()
		}
	case <-timeout.C:
	}
}

func newLog(cfg *config.Config, level string) (*logrus.Logger, error) {
	log := logrus.New()
	if level == "" {
		level = string(cfg.Log.Level)
	}
	parsed, err := logrus.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("log level %q: it is debug, info, warn or error", level)
	}
	log.SetLevel(parsed)
	if cfg.Log.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{})
	}
	if cfg.Log.File != "" {
		file, err := os.OpenFile(cfg.Log.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("log file: %w", err)
		}
		log.SetOutput(file)
	}
	return log, nil
}
