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

// SetTimerSlack lets the kernel wake the threads of this process later than they ask for by up to slack, together with
// other timers (50 µs by default; PR_SET_TIMERSLACK in prctl(2)). It concerns sleeping and waiting with a timeout, not
// what else wakes a thread. New threads inherit the slack. For other threads than the calling one the kernel asks for
// CAP_SYS_NICE (proc_pid_timerslack_operations in fs/proc/base.c, Linux 4.6).
func SetTimerSlack(slack time.Duration) error {
	const tasks = "/proc/self/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return err
	}
	text := []byte(strconv.FormatInt(slack.Nanoseconds(), 10))
	var errs []error
	for _, t := range threads {
		// The file is only in the threads' hidden folders of /proc, not below task.
		err := os.WriteFile(filepath.Join("/proc", t.Name(), "timerslack_ns"), text, 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // unless the thread has ended
			errs = append(errs, fmt.Errorf("the timer slack of thread %s: %w", t.Name(), err))
		}
	}
	return errors.Join(errs...)
}
