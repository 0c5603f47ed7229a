package coresched

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
)

func join(t *testing.T, g *Groups, want int, group string, pids ...int) {
	t.Helper()
	if moved, err := g.Join(group, pids...); err != nil || moved != want {
		t.Errorf("join %s: %d moved, %v; want %d", group, moved, err, want)
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	f, g := newFake(10, 11, 12, 20, 21)
	join(t, g, 2, "ns/a", 10, 11)
	join(t, g, 1, "ns/b", 20)
	f.want(t, map[int]uint64{10: 1, 11: 1, 12: 0, 20: 2})
	shares := f.shares
	join(t, g, 0, "ns/a", 10, 11)
	if f.shares != shares {
		t.Errorf("joining again changed %d cookies", f.shares-shares)
	}
	join(t, g, 1, "ns/a", 12)
	join(t, g, 1, "ns/b", 21, 20)
	f.want(t, map[int]uint64{10: 1, 11: 1, 12: 1, 20: 2, 21: 2})

	// The cookie outlives the process that it was created on.
	delete(f.processes, 10)
	f.processes[13] = 0
	join(t, g, 1, "ns/a", 13)
	f.want(t, map[int]uint64{11: 1, 12: 1, 13: 1})

	// A process of another group is moved alone, without its group.
	join(t, g, 1, "ns/b", 13)
	f.want(t, map[int]uint64{11: 1, 12: 1, 13: 2, 20: 2})
}

func TestJoinAfterRestart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		now  map[int]uint64
		pids []int
		want map[int]uint64
	}{
		"all have it":                   {map[int]uint64{10: 7, 11: 7}, []int{10, 11}, map[int]uint64{10: 7, 11: 7}},
		"one was started meanwhile":     {map[int]uint64{10: 0, 11: 7}, []int{10, 11}, map[int]uint64{10: 7, 11: 7}},
		"they have different ones":      {map[int]uint64{10: 7, 11: 8}, []int{10, 11}, map[int]uint64{10: 7, 11: 7}},
		"none has one":                  {map[int]uint64{10: 0, 11: 0, 5: 7}, []int{10, 11}, map[int]uint64{10: 1, 11: 1, 5: 7}},
		"the one with it has ended":     {map[int]uint64{11: 0}, []int{10, 11}, map[int]uint64{11: 1}},
		"none runs":                     {nil, []int{10, 11}, nil},
		"one has the other group's own": {map[int]uint64{30: 0, 10: 1, 11: 0}, []int{10, 11}, map[int]uint64{30: 1, 10: 2, 11: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, g := newFake()
			if _, ok := test.now[30]; ok {
				f.processes[30] = 0
				join(t, g, 1, "ns/other", 30)
			}
			for pid, cookie := range test.now {
				if pid != 30 {
					f.processes[pid] = cookie
				}
			}
			if _, err := g.Join("ns/a", test.pids...); err != nil {
				t.Error(err)
			}
			f.want(t, test.want)
			if len(test.want) == 0 && len(g.groups) > 0 {
				t.Errorf("a group without processes is kept: %v", g.groups)
			}
		})
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	f, g := newFake(10, 11, 12)
	join(t, g, 2, "ns/a", 10, 11)
	if err := g.Leave(10, 12, 13); err != nil {
		t.Error(err)
	}
	f.want(t, map[int]uint64{10: 0, 11: 1, 12: 0})
	if err := g.Leave(11); err != nil || len(g.groups) > 0 {
		t.Errorf("%v, groups %v", err, g.groups)
	}
}

// The numbers of cookies and processes are reused.
func TestNumbersAreReused(t *testing.T) {
	t.Parallel()
	f, g := newFake(10, 20)
	join(t, g, 1, "ns/a", 10)
	delete(f.processes, 10)
	join(t, g, 1, "ns/b", 20) // it now has cookie 1
	f.processes[10], f.processes[11] = 1, 0
	join(t, g, 1, "ns/a", 11)
	f.want(t, map[int]uint64{20: 1, 11: 2})
}

// Right after boot nobody has joined a group, and later everybody does.
func TestCookiesWithoutNames(t *testing.T) {
	t.Parallel()
	f, g := newFake(10, 11)
	f.nameless = true
	if moved, err := g.Join("ns/a", 10, 11); moved != 0 || !errors.Is(err, unix.EAGAIN) || len(g.groups) > 0 {
		t.Errorf("%d moved, %v, groups %v", moved, err, g.groups)
	}
	f.nameless = false
	join(t, g, 1, "ns/a", 10, 11)
	f.want(t, map[int]uint64{10: 1, 11: 1})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	f, g := newFake(10, 11, 12)
	f.forbidden[11] = true
	moved, err := g.Join("ns/a", 10, 11, 12, 0)
	if moved != 2 || !errors.Is(err, unix.EPERM) || !strings.Contains(fmt.Sprint(err), `group "ns/a", process 11`) || !strings.Contains(fmt.Sprint(err), "CAP_SYS_PTRACE") {
		t.Errorf("%d moved, %v", moved, err)
	}
	if !errors.Is(err, unix.ERANGE) || len(f.threads) > 1 {
		t.Errorf("process 0 is this thread: %v, %v", err, f.threads)
	}
	f.want(t, map[int]uint64{10: 1, 11: 0, 12: 1})
	if err := g.Leave(11, -1); !errors.Is(err, unix.EPERM) || !errors.Is(err, unix.ERANGE) {
		t.Errorf("leave: %v", err)
	}
	if _, err := g.Cookie(13); !errors.Is(err, unix.ESRCH) {
		t.Errorf("cookie of an ended process: %v", err)
	}
	f.fails = unix.ENODEV
	if moved, err := g.Join("ns/a", 10); moved != 0 || !errors.Is(err, unix.ENODEV) || !strings.Contains(fmt.Sprint(err), "SMT") {
		t.Errorf("without SMT: %d moved, %v", moved, err)
	}
}

// If Sluice itself has a cookie, it can't clear the cookie of processes that leave.
func TestLeaveWithACookieOfOnesOwn(t *testing.T) {
	t.Parallel()
	f, _ := newFake(10)
	g := &Groups{func(cmd, pid, scope int, id *uint64) error {
		err := f.prctl(cmd, pid, scope, id)
		if cmd == unix.PR_SCHED_CORE_GET && pid == 0 {
			*id = 99
		}
		return err
	}, map[string]*group{}}
	f.processes[10] = 5
	if err := g.Leave(10); err == nil || !strings.Contains(err.Error(), "enable_core_scheduling") {
		t.Error(err)
	}
	f.want(t, map[int]uint64{10: 5})
}

// No thread that had a cookie remains, and the main thread never has one.
func TestThreadsEnd(t *testing.T) {
	t.Parallel()
	f, g := newFake(10, 11)
	join(t, g, 2, "ns/a", 10, 11)
	if err := g.Leave(10); err != nil {
		t.Error(err)
	}
	if _, ok := f.threads[os.Getpid()]; ok || len(f.threads) != 1 { // Leave copies the cookie of no process
		t.Errorf("threads %v took a cookie", f.threads)
	}
	for tid := range f.threads {
		gone := func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", tid))
			return err != nil
		}
		for deadline := time.Now().Add(time.Minute); !gone(); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("thread %d is still there", tid)
			}
		}
	}
}

func TestNeverOnTheMainThread(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			thread.Run(func() {
				if unix.Gettid() == unix.Getpid() {
					t.Error("on the main thread, which does not end")
				}
			})
		})
	}
	all.Wait()
}

// A running process that has joined a group has the group's cookie, and no process of another
// group has it, whatever ends, forks, restarts or reuses a number.
func TestGroupsStayTogetherAndApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f, g := newFake()
		names := []string{"ns/a", "ns/b", "ns/c"}
		member := map[int]string{} // group of each process that has joined and runs
		of := func(name string) (pids []int) {
			for pid, in := range member {
				if in == name {
					pids = append(pids, pid)
				}
			}
			slices.Sort(pids)
			return pids
		}
		pid := func() int { return rapid.IntRange(1, 9).Draw(t, "pid") }
		t.Repeat(map[string]func(*rapid.T){
			"start": func(*rapid.T) {
				p := pid()
				if _, runs := f.processes[p]; !runs {
					f.processes[p] = 0
				}
			},
			"fork": func(*rapid.T) {
				parent, p := pid(), pid()
				cookie, runs := f.processes[parent]
				if _, taken := f.processes[p]; runs && !taken {
					f.processes[p] = cookie
					if in := member[parent]; in != "" {
						member[p] = in
					}
				}
			},
			"end": func(*rapid.T) {
				p := pid()
				delete(f.processes, p)
				delete(member, p)
			},
			"join": func(t *rapid.T) {
				p, name := pid(), rapid.SampledFrom(names).Draw(t, "group")
				if in := member[p]; in != "" && in != name {
					t.Skip("a process stays in its group")
				}
				// The container's other processes join too, as they are found.
				if _, err := g.Join(name, append(of(name), p)...); err != nil {
					t.Fatal(err)
				}
				if _, runs := f.processes[p]; runs {
					member[p] = name
				}
			},
			"leave": func(t *rapid.T) {
				p := pid()
				if err := g.Leave(p); err != nil || f.processes[p] != 0 {
					t.Fatal(err, f.processes[p])
				}
				delete(member, p)
			},
			"restart": func(t *rapid.T) {
				g = f.fresh()
				for _, name := range names {
					if moved, err := g.Join(name, of(name)...); err != nil || moved != 0 {
						t.Fatal(moved, err)
					}
				}
			},
			"": func(t *rapid.T) {
				cookies := map[string]uint64{}
				for p, name := range member {
					cookie := f.processes[p]
					if before, ok := cookies[name]; cookie == 0 || ok && before != cookie {
						t.Fatalf("group %s is split: %v of %v", name, f.processes, member)
					}
					cookies[name] = cookie
				}
				if distinct := slices.Compact(slices.Sorted(maps.Values(cookies))); len(distinct) < len(cookies) {
					t.Fatalf("groups share a cookie: %v", cookies)
				}
				if len(g.groups) > len(names) {
					t.Fatalf("groups %v", g.groups)
				}
			},
		})
	})
}

func BenchmarkJoin(b *testing.B) {
	pids := make([]int, 100)
	for n := range pids {
		pids[n] = n + 1
	}
	b.Run("held", func(b *testing.B) {
		_, g := newFake(pids...)
		g.Join("ns/a", pids...)
		for b.Loop() {
			g.Join("ns/a", pids...)
		}
	})
	b.Run("moved", func(b *testing.B) {
		f, g := newFake(pids...)
		g.Join("ns/a", pids...)
		for b.Loop() {
			f.processes[2] = 0
			g.Join("ns/a", 2)
		}
	})
	b.Run("baseline/thread", func(b *testing.B) {
		for b.Loop() {
			thread.Run(func() {})
		}
	})
}
