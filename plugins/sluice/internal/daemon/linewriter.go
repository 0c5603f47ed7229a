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

// lineWriter writes log lines in its own goroutine: logging must not block on a disk that hangs
// or is frozen, nor on a journald on such a disk. If the queue is full, it drops further lines
// and logs their number.
type lineWriter struct {
	to    io.Writer
	log   *logrus.Logger
	lines chan []byte
	lost  atomic.Int64
	done  chan struct{}
}

// waitingLines is the length of the queue: a few seconds of a busy log.
const waitingLines = 4096

// detach makes a logger write through a lineWriter, unless it writes to a terminal, where
// logrus uses its format for people.
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

// Write queues a line. It never blocks and never fails.
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
		w.to.Write(line) //nolint:errcheck // there is no other place to report the error
		if n := w.lost.Swap(0); n > 0 {
			e := logrus.NewEntry(w.log).WithField("lines", n)
			e.Time, e.Level, e.Message = time.Now(), logrus.WarnLevel, "Lines of the log are lost: what takes them was too slow"
			if text, err := w.log.Formatter.Format(e); err == nil {
				w.to.Write(text) //nolint:errcheck // there is no other place to report the error
			}
		}
	}
}

// flush writes the queued lines, but gives up after some time, and closes the log's file.
// Nothing is written after it.
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
