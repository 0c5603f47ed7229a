package thread

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSetTimerSlack sets the slack of the threads that are there, of which a new one inherits it.
func TestSetTimerSlack(t *testing.T) {
	const usual = 50 * time.Microsecond
	if err := SetTimerSlack(123 * time.Microsecond); errors.Is(err, os.ErrPermission) {
		t.Skip("SKIPPED, CAP_SYS_NICE is needed: ", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer SetTimerSlack(usual)
	Run(func() { // on a thread that is likely new
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil || len(threads) < 3 {
			t.Errorf("threads %v, %v", threads, err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile(filepath.Join("/proc", thread.Name(), "timerslack_ns"))
			if slack := strings.TrimSpace(string(text)); slack != "123000" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("thread %s has %s ns, %v", thread.Name(), slack, err)
			}
		}
	})
}
