package thread

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// SetTimerSlack lets the kernel wake the threads of this process later than they ask for, by up to slack, so that it can
// serve several timers at once (PR_SET_TIMERSLACK in prctl(2); 50 µs by default). It concerns sleeping and the timeouts of
// waiting; whatever else wakes a thread is not delayed. New threads inherit the slack. For threads other than the calling
// one, the kernel requires CAP_SYS_NICE (proc_pid_timerslack_operations in fs/proc/base.c, Linux 4.6).
func SetTimerSlack(slack time.Duration) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	text := []byte(strconv.FormatInt(slack.Nanoseconds(), 10))
	var errs []error
	for _, t := range threads {
		// The file is missing below /proc/self/task. It is in the folder of each thread in /proc, which no list shows.
		err := os.WriteFile(filepath.Join("/proc", t.Name(), "timerslack_ns"), text, 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // unless the thread has ended
			errs = append(errs, fmt.Errorf("the timer slack of thread %s: %w", t.Name(), err))
		}
	}
	return errors.Join(errs...)
}
