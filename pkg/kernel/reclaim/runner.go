package reclaim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
	"github.com/sluice-dev/sluice/pkg/knobs"
)

// Kernel is what the runner needs of cgroupfs. Both methods return cgroupfs.ErrGone for a
// cgroup that no longer exists.
type Kernel interface {
	Observe(dir string) (Observation, error)
	// Reclaim blocks until the kernel has reclaimed that much, and fails with EAGAIN if it
	// reclaimed less (memory.reclaim, Linux 5.19).
	Reclaim(dir string, bytes knobs.Bytes) error
}

// Counters count what the runner has done since its start.
type Counters struct {
	Reclaimed  knobs.Bytes // full steps only: the amount of a shortfall is unknown
	Steps      int         // attempted steps
	Shortfalls int         // steps in which the kernel reclaimed less
	Pauses     int         // pauses because of pressure
	Failures   int         // failures to read or to reclaim
	LastError  string      // "" if there was none
}

// Runner reclaims for its targets in its own goroutine: a step blocks for as long as the kernel
// needs, and its time counts as memory pressure of Sluice, not of the cgroup.
type Runner struct {
	kernel Kernel
	wake   chan struct{}

	mu       sync.Mutex
	targets  map[string]Target // Run owns a map once it is here
	counters Counters
}

// New returns a runner without targets.
func New(kernel Kernel) *Runner {
	return &Runner{kernel: kernel, wake: make(chan struct{}, 1)}
}

// Set replaces the targets, by the cgroup's path as in knobs.Object. It never blocks. Cgroups
// that stay keep their state, also if their target changes.
func (r *Runner) Set(targets map[string]Target) {
	targets = maps.Clone(targets)
	maps.DeleteFunc(targets, func(_ string, t Target) bool { return t == Target{} })
	r.mu.Lock()
	r.targets = targets
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // Run has a pending wake-up
	}
}

// Counters returns the present counters.
func (r *Runner) Counters() Counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counters
}

// interval is the time between two readings of a cgroup that needs no reclaim.
const interval = time.Second

// Run works until the context ends, which it checks between steps.
func (r *Runner) Run(ctx context.Context) {
	GiveWay()
	states := map[string]State{}
	for {
		r.mu.Lock()
		targets := r.targets
		r.mu.Unlock()
		maps.DeleteFunc(states, func(dir string, _ State) bool { _, kept := targets[dir]; return !kept })

		var next <-chan time.Time // without targets it waits for Set alone
		if len(targets) > 0 {
			wait := interval
			if r.pass(ctx, targets, states) {
				wait = spacing
			}
			next = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-next:
		}
	}
}

// pass checks every cgroup once and reports whether more reclaim is due soon.
func (r *Runner) pass(ctx context.Context, targets map[string]Target, states map[string]State) (busy bool) {
	for _, dir := range slices.Sorted(maps.Keys(targets)) {
		if ctx.Err() != nil {
			return false
		}
		if r.work(dir, targets, states) {
			busy = true
		}
	}
	return busy
}

// work checks one cgroup and takes a step if it is due. It drops the target of a cgroup that no
// longer exists.
func (r *Runner) work(dir string, targets map[string]Target, states map[string]State) (busy bool) {
	seen, err := r.kernel.Observe(dir)
	if err == nil && seen.Pressure < 0 {
		err = errors.New("memory.pressure tells nothing, and without it nothing would stop reclaim: boot with psi=1")
	}
	if err != nil {
		r.failed(dir, "looking at its memory", err)
		if errors.Is(err, cgroupfs.ErrGone) {
			delete(targets, dir)
		}
		return false
	}
	before := states[dir]
	state, bytes := Step(targets[dir], before, seen, time.Now())
	if state.Paused() && !before.Paused() {
		r.count(func(c *Counters) { c.Pauses++ })
	}
	if bytes > 0 {
		err = r.kernel.Reclaim(dir, bytes)
		state = state.After(err != nil, time.Now())
		r.reclaimed(dir, bytes, err)
	}
	states[dir] = state
	return bytes > 0 && err == nil
}

func (r *Runner) reclaimed(dir string, bytes knobs.Bytes, err error) {
	r.count(func(c *Counters) {
		c.Steps++
		switch {
		case err == nil:
			c.Reclaimed += bytes
		case short(err):
			c.Shortfalls++
		}
	})
	if err != nil && !short(err) {
		r.failed(dir, fmt.Sprintf("reclaiming %s", bytes), err)
	}
}

// short reports whether the kernel reclaimed less than requested: EINTR says that a signal
// interrupted it.
func short(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}

// failed counts a failure, unless the container has ended.
func (r *Runner) failed(dir, doing string, err error) {
	if errors.Is(err, cgroupfs.ErrGone) {
		return
	}
	text := fmt.Sprintf("cgroup %s, %s: %v; the next look tries again, and meanwhile its own tasks reclaim at the limit", dir, doing, err)
	r.count(func(c *Counters) { c.Failures++; c.LastError = text })
}

func (r *Runner) count(change func(*Counters)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.counters)
}
