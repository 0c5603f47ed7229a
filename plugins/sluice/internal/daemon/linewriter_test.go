package daemon

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
)

// stuckWriter blocks every write until it is released.
type stuckWriter struct {
	free chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func (w *stuckWriter) Write(line []byte) (int, error) {
	<-w.free
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(line)
}

// Logging doesn't wait for a disk that hangs. Lines stay in order, and lost lines are
// counted.
func TestLogDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to := &stuckWriter{free: make(chan struct{})}
		log := logrus.New()
		log.SetOutput(to)
		w := detach(log)
		began := time.Now()
		const more = 10
		for i := range waitingLines + 1 + more {
			fmt.Fprintf(w, "line %d\n", i)
			synctest.Wait() // the first line is being written and the others wait
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		w.flush()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the end took %s", took)
		}
		close(to.free)
		synctest.Wait()
		fmt.Fprintln(w, "last")
		w.flush()
		text := to.text.String()
		if !strings.HasPrefix(text, "line 0\n") || !strings.Contains(text, fmt.Sprintf("lines=%d\n", more)) || !strings.HasSuffix(text, fmt.Sprintf("line %d\nlast\n", waitingLines)) {
			t.Errorf("the log begins %.200q and ends %.200q", text, text[max(0, len(text)-200):])
		}
	})
}
