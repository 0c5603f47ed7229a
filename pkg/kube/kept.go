package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// kept is an object of the API server that has what the plugin reports, as a list: the devices of a
// ResourceSlice, the zones of a NodeResourceTopology.
type kept[T any] struct {
	name string                                              // of the object, for the log
	due  func(published, want []T, since time.Duration) bool // whether to publish in place of what has been published for so long
	put  func(ctx context.Context, want []T) error           // lets the object have this
	wait func(error) time.Duration                           // until the next attempt, after a request that failed
	wake chan struct{}

	mu        sync.Mutex
	want      []T
	known     bool      // whether want is known
	lostAt    time.Time // since when the plugin has reported nothing; zero while it does
	recheck   bool      // the object may not be what was published
	published []T
	at        time.Time // of the last publication
	altered   bool      // the API server has changed what was published
}

// These are the times of an object.
const (
	keptPause    = 5 * time.Second  // after a request that failed
	keptRecheck  = 5 * time.Minute  // in case that a change by somebody else was missed
	keptPatience = 30 * time.Second // until all is withdrawn because the plugin is away: its restart takes less

	operatorPause = 3 * time.Minute // until the next attempt where only an operator can help
)

// alteredError is of an object that the API server has taken, and of which it keeps something else than it was sent.
type alteredError struct{ text string }

func (e alteredError) Error() string { return e.text }

func soon(error) time.Duration { return keptPause }

// heard notes what the object is to have.
func (k *kept[T]) heard(want []T) {
	k.mu.Lock()
	k.want, k.known, k.lostAt = want, true, time.Time{}
	k.mu.Unlock()
	k.awake()
}

// lost notes that the plugin is away. If that lasts, the object is to have nothing.
func (k *kept[T]) lost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lostAt.IsZero() {
		k.lostAt = time.Now()
	}
}

// check lets the object be compared with what it is to have.
func (k *kept[T]) check() {
	k.mu.Lock()
	k.recheck = true
	k.mu.Unlock()
	k.awake()
}

func (k *kept[T]) awake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// next returns what to publish, if it is time to. A check that is asked for from then on makes
// it due again. An object that the API server alters differs at each check, and each write of it asks for
// the next one: it is written again only after operatorPause.
func (k *kept[T]) next(now time.Time) ([]T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.lostAt.IsZero() && now.Sub(k.lostAt) >= keptPatience {
		k.want, k.known = nil, true
	}
	since := now.Sub(k.at)
	recheck := k.recheck && (!k.altered || since >= operatorPause)
	due := k.known && (recheck || since >= keptRecheck || k.due(k.published, k.want, since))
	if due {
		k.recheck = false
	}
	return k.want, due
}

// done notes a publication, and whether the API server has altered it.
func (k *kept[T]) done(published []T, altered bool, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.published, k.altered, k.at = published, altered, now
}

// keep keeps the object until the context ends. It logs once why that fails.
func (k *kept[T]) keep(ctx context.Context, log logrus.FieldLogger) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-tick.C:
		}
		want, due := k.next(time.Now())
		if !due {
			continue
		}
		err := k.put(ctx, want)
		_, altered := errors.AsType[alteredError](err)
		if err == nil || altered {
			k.done(want, altered, time.Now())
		}
		if err == nil {
			told = ""
			continue
		}
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			log.WithError(err).Warn("The " + k.name + " of the node can't be published")
		}
		if !altered {
			k.check()
			pause(ctx, k.wait(err))
		}
	}
}
