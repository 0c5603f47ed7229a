package ioprio

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/pkg/kernel/thread"
)

// level is what the kernel shows for a best-effort level.
func level(n int) int { return 2<<13 | n }

// host has the priority of each thread. Those of the container are listed.
type host struct {
	threads  map[int]int
	inside   []int
	refuses  map[int]error // by thread
	listings int
	at       func(h *host, listing int) // runs before a listing, the first of which is 1
	set      func(h *host, tid int)     // runs before each change
	noList   error
}

func (h *host) on() *Threads {
	return &Threads{
		list: func(string) ([]int, error) {
			h.listings++
			if h.at != nil {
				h.at(h, h.listings)
			}
			return slices.Clone(h.inside), h.noList
		},
		get: func(tid int) (int, error) {
			ioprio, is := h.threads[tid]
			if !is {
				return 0, unix.ESRCH
			}
			return ioprio, nil
		},
		set: func(tid, ioprio int) error {
			if h.set != nil {
				h.set(h, tid)
			}
			if _, is := h.threads[tid]; !is {
				return unix.ESRCH
			}
			if err := h.refuses[tid]; err != nil {
				return err
			}
			h.threads[tid] = ioprio
			return nil
		},
	}
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	const realtime, ionice, library = 1<<13 | 4, 3<<13 | 7, 3 << 13
	own := []int{level(2), realtime, ionice, library, level(7)}
	for name, test := range map[string]struct {
		has, idle, restored []int // of the threads
	}{
		"none":               {[]int{0, 0}, []int{sluice, sluice}, []int{0, 0}},
		"before Linux 5.15":  {[]int{4}, []int{sluice}, []int{0}},
		"Linux 5.15 to 5.19": {[]int{level(4)}, []int{sluice}, []int{0}},
		"its own":            {own, own, own},
		"it has it":          {[]int{sluice, 0}, []int{sluice, sluice}, []int{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &host{threads: map[int]int{}}
			for i, ioprio := range test.has {
				h.threads[i+1], h.inside = ioprio, append(h.inside, i+1)
			}
			threads := h.on()
			for _, step := range []struct {
				do   func(string) (int, error)
				want []int
			}{{threads.Idle, test.idle}, {threads.Restore, test.restored}} {
				before := maps.Clone(h.threads)
				changed, err := step.do("/job")
				for i, want := range step.want {
					if h.threads[i+1] != want || err != nil {
						t.Errorf("%#x, %v; want %#x", h.threads, err, step.want)
					}
					if h.threads[i+1] != before[i+1] {
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
	h := &host{threads: map[int]int{10: 0}, inside: []int{9, 10}, set: func(h *host, tid int) {
		if next := tid + 1; next < 13 {
			h.threads[next], h.inside = 0, append(h.inside, next)
		}
	}}
	if changed, err := h.on().Idle("/job"); changed != 3 || err != nil {
		t.Errorf("%d changed, %v", changed, err)
	}
	if want := map[int]int{10: sluice, 11: sluice, 12: sluice}; !maps.Equal(h.threads, want) {
		t.Errorf("%v, want %v", h.threads, want)
	}
}

// A thread of another cgroup never stays idle, whatever it does to get a number that the container's
// threads had.
func TestStrangersStayAsTheyAre(t *testing.T) {
	t.Parallel()
	ends := func(h *host) { h.inside = slices.DeleteFunc(h.inside, func(tid int) bool { return tid == 11 }) }
	for name, h := range map[string]*host{
		"a number is reused before the change": {at: func(h *host, listing int) {
			if listing == 2 {
				ends(h) // the change has met a service's thread
			}
		}},
		"a thread leaves the cgroup": {set: func(h *host, _ int) { ends(h) }},
		"the last threads are listed": {at: func(h *host, listing int) { // each listing has one more to change
			if next := 20 + listing; listing < mostListings {
				h.threads[next], h.inside = 0, append(h.inside, next)
			}
			if listing == mostListings {
				h.threads[11] = 0
			}
			if listing > mostListings {
				ends(h)
			}
		}},
		"the cgroup can't be listed any more": {at: func(h *host, listing int) {
			if listing > 1 {
				h.noList = errors.New("no such device")
			}
		}},
	} {
		h.threads, h.inside = map[int]int{10: 0, 11: 0, 12: level(2)}, []int{10, 11, 12}
		changed, err := h.on().Idle("/job")
		if (err != nil) != (h.noList != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if h.threads[11] != none || h.threads[12] != level(2) {
			t.Errorf("%s: the other cgroup's thread has %#x", name, h.threads[11])
		}
		for tid, ioprio := range h.threads {
			if ioprio == sluice {
				changed--
			}
			if ioprio == sluice && h.noList != nil {
				t.Errorf("%s: %d is idle", name, tid)
			}
		}
		if changed != 0 && !strings.HasPrefix(name, "the last") {
			t.Errorf("%s: it reports %d more than were changed", name, changed)
		}
	}
	// Another container's idle thread gets a number that Restore has changed.
	h := &host{threads: map[int]int{10: sluice, 11: sluice, 12: sluice}, inside: []int{10, 11}, at: func(h *host, listing int) {
		if listing == 2 {
			h.threads[11] = sluice
			ends(h)
		}
	}}
	if _, err := h.on().Restore("/job"); err != nil || !maps.Equal(h.threads, map[int]int{10: 0, 11: sluice, 12: sluice}) {
		t.Errorf("restored: %#x, %v", h.threads, err)
	}
}

// A cgroup that never stops making threads ends no call later than others.
func TestForkBomb(t *testing.T) {
	t.Parallel()
	h := &host{threads: map[int]int{}, at: func(h *host, listing int) {
		h.threads[listing], h.inside = 0, append(h.inside, listing)
	}}
	if changed, err := h.on().Idle("/job"); h.listings > mostListings+1 || changed != mostListings || err != nil {
		t.Errorf("%d listings, %d changed, %v", h.listings, changed, err)
	}
}

// A thread that refuses does not keep others from their priority. The error says the same however
// many refuse, so that it is logged once.
func TestRefusal(t *testing.T) {
	t.Parallel()
	h := &host{threads: map[int]int{10: 0, 11: 0}, inside: []int{10, 11}, refuses: map[int]error{10: unix.EPERM}}
	changed, first := h.on().Idle("/job")
	if !errors.Is(first, unix.EPERM) || !strings.Contains(first.Error(), "CAP_SYS_NICE") || changed != 1 || h.threads[11] != sluice {
		t.Errorf("%d changed to %#x, %v", changed, h.threads, first)
	}
	for tid := range 1000 {
		h.threads[tid+20], h.inside, h.refuses[tid+20] = 0, append(h.inside, tid+20), unix.EPERM
	}
	h.listings = 0
	if _, err := h.on().Idle("/job"); err == nil || err.Error() != first.Error() || h.listings != 1 {
		t.Errorf("after %d listings %v, before %v", h.listings, err, first)
	}
	h = &host{threads: map[int]int{0: 0, 5: 0}, inside: []int{5, 0}}
	if _, err := h.on().Idle("/job"); !errors.Is(err, unix.ERANGE) || h.threads[0] != 0 {
		t.Errorf("without the host's process ids: %v, %v", err, h.threads)
	}
}

// The kernel keeps the value by which Restore knows what Idle did.
func TestRealKernel(t *testing.T) {
	t.Parallel()
	thread.Run(func() { // so that the priority ends with the thread
		tid := unix.Gettid()
		threads := New(func(string) ([]int, error) { return []int{tid, 1<<22 + 1}, nil }) // one above any pid_max has ended
		if _, err := threads.Idle("/job"); err != nil {
			t.Error(err)
		}
		if got, err := get(tid); got != sluice || err != nil {
			t.Errorf("idle is %#x, %v", got, err)
		}
		if _, err := threads.Restore("/job"); err != nil {
			t.Error(err)
		}
		if got, err := get(tid); !unset(got) || err != nil {
			t.Errorf("restored is %#x, %v", got, err)
		}
	})
}
