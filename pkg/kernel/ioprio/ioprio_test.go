package ioprio

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
)

// level is what the kernel shows for a best-effort level.
func level(n int) int { return 2<<13 | n }

func TestPriorities(t *testing.T) {
	t.Parallel()
	const realtime, ionice = 1<<13 | 4, 3<<13 | 7
	for name, test := range map[string]struct {
		has, idle, restored []int // of the process's threads
	}{
		"none":               {[]int{0, 0}, []int{sluice, sluice}, []int{0, 0}},
		"before Linux 5.15":  {[]int{4}, []int{sluice}, []int{0}},
		"Linux 5.15 to 5.19": {[]int{level(4)}, []int{sluice}, []int{0}},
		"its own":            {[]int{level(2), realtime, ionice, level(7)}, []int{level(2), realtime, ionice, level(7)}, []int{level(2), realtime, ionice, level(7)}},
		"it has it":          {[]int{sluice, 0}, []int{sluice, sluice}, []int{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			has := slices.Clone(test.has)
			threads := &Threads{
				get: func(tid int) (int, error) { return has[tid-1], nil },
				set: func(tid, ioprio int) error { has[tid-1] = ioprio; return nil },
				list: func(int) (tids []int, err error) {
					for i := range has {
						tids = append(tids, i+1)
					}
					return tids, nil
				},
			}
			for _, step := range []struct {
				do   func(...int) (int, error)
				want []int
			}{{threads.Idle, test.idle}, {threads.Restore, test.restored}} {
				before := slices.Clone(has)
				changed, err := step.do(1)
				if err != nil || !slices.Equal(has, step.want) {
					t.Errorf("%#x, %v; want %#x", has, err, step.want)
				}
				for i := range has {
					if has[i] != before[i] {
						changed--
					}
				}
				if changed != 0 {
					t.Errorf("it reports %d more than were changed", changed)
				}
			}
		})
	}
}

// A thread that appears while the others change changes too, and one that ends is no error.
func TestThreadsComeAndGo(t *testing.T) {
	t.Parallel()
	has := map[int]int{10: 0}
	threads := &Threads{
		get: func(tid int) (int, error) {
			if tid == 9 {
				return 0, unix.ESRCH
			}
			return has[tid], nil
		},
		set: func(tid, ioprio int) error {
			has[tid] = ioprio
			if next := tid + 1; next < 13 {
				has[next] = 0
			}
			return nil
		},
		list: func(int) ([]int, error) { return append([]int{9}, slices.Collect(maps.Keys(has))...), nil },
	}
	if changed, err := threads.Idle(10); changed != 3 || err != nil {
		t.Errorf("%d changed, %v", changed, err)
	}
	if want := map[int]int{10: sluice, 11: sluice, 12: sluice}; !maps.Equal(has, want) {
		t.Errorf("%v, want %v", has, want)
	}
}

// A process that refuses does not keep others from their priority.
func TestRefusal(t *testing.T) {
	t.Parallel()
	has := map[int]int{11: 0}
	threads := &Threads{
		get: func(tid int) (int, error) { return has[tid], nil },
		set: func(tid, ioprio int) error {
			if tid == 10 {
				return unix.EPERM
			}
			has[tid] = ioprio
			return nil
		},
		list: func(pid int) ([]int, error) {
			if pid == 12 {
				return nil, os.ErrNotExist
			}
			return []int{pid}, nil
		},
	}
	_, err := threads.Idle(10, 12, 11, 0)
	if !errors.Is(err, unix.EPERM) || !errors.Is(err, unix.ERANGE) || !strings.Contains(err.Error(), "process 10") || !strings.Contains(err.Error(), "CAP_SYS_NICE") || strings.Contains(err.Error(), "process 12") {
		t.Error(err)
	}
	if has[11] != sluice {
		t.Errorf("%v", has)
	}
}

// The kernel keeps the value by which Restore knows what Idle did.
func TestRealKernel(t *testing.T) {
	t.Parallel()
	thread.Run(func() { // so that the priority ends with the thread
		tid := unix.Gettid()
		threads := New()
		threads.list = func(int) ([]int, error) { return []int{tid}, nil }
		if _, err := threads.Idle(tid); err != nil {
			t.Error(err)
		}
		if got, err := get(tid); got != sluice || err != nil {
			t.Errorf("idle is %#x, %v", got, err)
		}
		if _, err := threads.Restore(tid); err != nil {
			t.Error(err)
		}
		if got, err := get(tid); !unset(got) || err != nil {
			t.Errorf("restored is %#x, %v", got, err)
		}
	})
	tids, err := list(os.Getpid())
	if err != nil || !slices.Contains(tids, os.Getpid()) {
		t.Errorf("threads %v, %v", tids, err)
	}
	if _, err := New().Idle(1<<22 + 1); err != nil { // above any pid_max
		t.Errorf("an ended process: %v", err)
	}
}
