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
	"github.com/sluice-dev/sluice/pkg/workload"
)

// level is what the kernel shows for a best-effort level.
func level(n int) int { return bestEffort<<classShift | n }

func some(p workload.IOPriority) Priority { return workload.Some(p) }

func of(priorities ...workload.IOPriority) (s Set) {
	for _, p := range priorities {
		s |= Only(some(p))
	}
	return s
}

func TestChange(t *testing.T) {
	t.Parallel()
	const rt, asIdle = realtime<<classShift | 4, idle<<classShift | 7
	for name, test := range map[string]struct {
		given     Set
		to        Priority
		has, want []int // of the process's threads
	}{
		"first":                   {0, some(7), []int{0, 0}, []int{level(7), level(7)}},
		"before Linux 5.15":       {0, some(7), []int{none<<classShift | 4}, []int{level(7)}},
		"Linux 5.15 to 5.19":      {0, some(7), []int{level(4)}, []int{level(7)}},
		"idle":                    {0, some(workload.IOIdle), []int{0}, []int{idle << classShift}},
		"its own":                 {of(7), some(6), []int{level(2), rt, asIdle, level(7)}, []int{level(2), rt, asIdle, level(6)}},
		"it has it":               {of(6), some(6), []int{level(6)}, []int{level(6)}},
		"several given":           {of(5, workload.IOIdle), some(7), []int{level(5), asIdle, 0, level(6)}, []int{level(7), level(7), level(7), level(6)}},
		"taken back":              {of(7), Priority{}, []int{level(7), level(6), 0}, []int{0, level(6), 0}},
		"idle is taken back":      {of(workload.IOIdle), Priority{}, []int{asIdle}, []int{0}},
		"nothing is taken":        {0, Priority{}, []int{level(7), level(4)}, []int{level(7), level(4)}},
		"a hint beside the level": {0, some(7), []int{level(6) | 1<<3}, []int{level(6) | 1<<3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			has, wrote := slices.Clone(test.has), 0
			threads := &Threads{
				get: func(tid int) (int, error) { return has[tid-1], nil },
				set: func(tid, ioprio int) error { has[tid-1] = ioprio; wrote++; return nil },
				list: func(int) (tids []int, err error) {
					for i := range has {
						tids = append(tids, i+1)
					}
					return tids, nil
				},
			}
			changed, err := threads.Change(test.given, test.to, 1)
			if err != nil || !slices.Equal(has, test.want) {
				t.Errorf("%#x, %v; want %#x", has, err, test.want)
			}
			if changed != wrote {
				t.Errorf("%d changed, %d written", changed, wrote)
			}
		})
	}
}

// A thread that appears while the others get their priority gets it too, and one that ends is no error.
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
	if changed, err := threads.Change(0, some(7), 10); changed != 3 || err != nil {
		t.Errorf("%d changed, %v", changed, err)
	}
	if want := map[int]int{10: level(7), 11: level(7), 12: level(7)}; !maps.Equal(has, want) {
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
	_, err := threads.Change(0, some(7), 10, 12, 11, 0)
	if !errors.Is(err, unix.EPERM) || !errors.Is(err, unix.ERANGE) || !strings.Contains(err.Error(), "process 10") || !strings.Contains(err.Error(), "CAP_SYS_NICE") || strings.Contains(err.Error(), "process 12") {
		t.Error(err)
	}
	if has[11] != level(7) {
		t.Errorf("%v", has)
	}
}

// The kernel has what Change writes, and Change reads it.
func TestRealKernel(t *testing.T) {
	t.Parallel()
	thread.Run(func() { // so that the priority of the thread under test ends with it
		tid := unix.Gettid()
		threads := New()
		threads.list = func(int) ([]int, error) { return []int{tid}, nil }
		for _, step := range []struct {
			given Set
			to    Priority
			want  int
		}{
			{0, some(7), level(7)}, {of(7), some(workload.IOIdle), idle << classShift},
			{of(7), Priority{}, idle << classShift}, {of(workload.IOIdle), Priority{}, none},
		} {
			if _, err := threads.Change(step.given, step.to, tid); err != nil {
				t.Fatal(err)
			}
			if got, err := get(tid); err != nil || decode(got) != decode(step.want) {
				t.Fatalf("given %b, to %v: %#x, %v; want %#x", step.given, step.to, got, err, step.want)
			}
		}
	})
	tids, err := list(os.Getpid())
	if err != nil || !slices.Contains(tids, os.Getpid()) {
		t.Errorf("threads %v, %v", tids, err)
	}
	if _, err := New().Change(0, some(7), 1<<22+1); err != nil { // above any pid_max
		t.Errorf("an ended process: %v", err)
	}
}
