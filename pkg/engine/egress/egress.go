// Package egress measures what the node and its pods of batch work send, and sets the limits that
// control.Egress decides.
//
// The kernel may keep whoever changes a qdisc waiting while it sets up the network of other pods (rtnl_lock), so a
// goroutine of its own does both, and never the control loop.
package egress

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/kernel/network"
	"github.com/sluice-dev/sluice/pkg/observe"
)

const (
	usualInterval = 250 * time.Millisecond  // between two readings
	timeForPod    = 2500 * time.Microsecond // the interval is at least so long for each pod, so that reading takes below 1 % of a CPU
	lazyTime      = 1500 * time.Millisecond // some drivers update their counters once a second
	checkTime     = 30 * time.Second        // after which a limit is set again, in case somebody has removed it
	retryTime     = 10 * time.Second        // between two attempts to open the network of a pod
	findTime      = 10 * time.Second        // between two looks for the link, since reading a speed takes rtnl_lock and may ask the card
	lateTime      = 10 * time.Second        // after which a reading that should have come is missed
	againTime     = time.Second             // between two attempts to limit a pod, some of whose devices may well be limited
)

// Network is a node's network; network.Host implements it.
type Network interface {
	Uplinks() ([]string, error)
	Speed(device string) (int64, error)
	Sent(device string) (uint64, error)
	Pod(pid int, path string) (Pod, error)
	Release(keep []network.ID, dry bool) (int, error)
}

// Pod is the network of a pod; network.Pod implements it.
type Pod interface {
	ID() network.ID
	Sent() (uint64, error)
	Limit(bits int64) error
	IsLimited() (bool, error)
	Release() error
	Close()
}

// Target is a pod of batch work with a network of its own. It is comparable: a pod whose target changes is opened anew.
type Target struct {
	UID     string
	Process int    // on the pod's network; 0 if unknown
	Path    string // of its network namespace on the host; "" if unknown
}

// Shaper measures the node's link, and measures and limits pods. Its methods do not wait, and any goroutine may call them.
type Shaper struct {
	host     Network
	mark     string // file that exists while pods may have limits
	interval time.Duration
	wake     chan struct{}

	mu      sync.Mutex
	began   bool
	link    *Link
	targets []Target
	decided bool                       // Limit was called
	limits  map[string]observe.BitRate // wanted, by UID
	latest  observe.Egress
	dueAt   time.Time // when the next reading is missed; zero if none is due

	marked    string // what the mark says, "" for nothing yet; of the goroutine, like what follows
	found     Link   // link, completed
	unknown   error  // what is unknown of it
	foundFor  *Link
	foundAt   time.Time
	links     []device
	pods      map[string]*pod // by UID
	bytes     uint64          // sent by all pods since the start
	bytesRate observe.ByteRate
	batch     observe.BitRate // sent by the pods in the time over which the rates of links are
}

// pod is a target with its state.
type pod struct {
	Target
	network Pod // nil if it can't be opened
	openAt  time.Time
	bytes   uint64 // sent since the network exists
	rate    observe.ByteRate
	setAt   time.Time // when its limit was set last
	unsure  bool      // it may have a limit beside PodEgress.Limit: of an earlier process, or on some of its devices
	unread  string    // why it can't be read
	unset   string    // why its limit can't be set
	observe.PodEgress
}

// New makes a shaper of no pods. The file of the path mark exists while pods may have limits, so that the next
// process and Restore know of them; its folder must exist.
func New(host Network, mark string) *Shaper {
	return &Shaper{host: host, mark: mark, interval: usualInterval, wake: make(chan struct{}, 1), pods: map[string]*pod{}}
}

// Follow measures the link and these pods until the context ends or it is called again, and no others; nothing if link
// is nil. The limit of a pod that is not among them any more ends. The first call also ends limits that an earlier
// process has set on other pods.
func (s *Shaper) Follow(ctx context.Context, link *Link, targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.targets = link, targets
	if !s.began {
		s.began = true
		go s.run(ctx)
	}
	s.wakeUp()
}

// Limit sets the limits of pods, by UID. A pod without one is not limited. Before the first call, pods keep the limits
// that an earlier process has set. The map must not be modified afterwards.
func (s *Shaper) Limit(limits map[string]observe.BitRate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.decided || !maps.Equal(s.limits, limits) {
		s.decided, s.limits = true, limits
		s.wakeUp()
	}
}

func (s *Shaper) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Latest returns the latest reading. If the next one is late, the problem says so.
func (s *Shaper) Latest() observe.Egress {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := s.latest
	if !s.dueAt.IsZero() && time.Now().After(s.dueAt) {
		latest.Problem = "the kernel has not answered for more than " + lateTime.String()
	}
	return latest
}

// run measures and limits until the context ends. Limits stay then, as all settings do while no plugin runs.
func (s *Shaper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	swept := false
	var readAt time.Time
	var reading observe.Egress
	for {
		s.mu.Lock()
		link, targets, limits, decided := s.link, s.targets, s.limits, s.decided
		s.mu.Unlock()
		s.keep(targets)
		interval := max(s.interval, timeForPod*time.Duration(len(targets)))
		switch now := time.Now(); {
		case link == nil:
			reading, readAt, s.links = observe.Egress{}, time.Time{}, nil
		case now.Sub(readAt) >= interval:
			readAt = now
			reading = s.read(link, now)
			timer.Reset(interval)
		}
		if decided {
			s.apply(limits, time.Now())
		}
		s.publish(reading, interval)
		if !swept {
			swept = true
			s.sweep()
		}
		select {
		case <-ctx.Done():
			for _, p := range s.pods {
				p.close()
			}
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// keep opens the pods that are to be followed, and lets go of the others.
func (s *Shaper) keep(targets []Target) {
	wanted := make(map[string]Target, len(targets))
	for _, t := range targets {
		wanted[t.UID] = t
	}
	for uid, p := range s.pods {
		if wanted[uid] != p.Target {
			if _, stays := wanted[uid]; !stays && p.network != nil {
				s.count(p)
				p.network.Release() //nolint:errcheck // the pod has mostly ended, and its devices are gone
			}
			p.close()
			delete(s.pods, uid)
		}
	}
	now := time.Now()
	for uid, t := range wanted {
		p := s.pods[uid]
		if p == nil {
			p = &pod{Target: t}
			s.pods[uid] = p
		}
		if p.network == nil && (p.openAt.IsZero() || now.Sub(p.openAt) >= retryTime) {
			p.open(s.host, now)
		}
	}
}

func (p *pod) open(host Network, now time.Time) {
	p.openAt, p.unread = now, ""
	network, err := host.Pod(p.Process, p.Path)
	if err != nil {
		p.unread = err.Error()
		return
	}
	p.network = network
	limited, err := p.network.IsLimited()
	p.unsure = limited || err != nil
}

func (p *pod) close() {
	if p.network != nil {
		p.network.Close()
		p.network = nil
	}
}

// apply sets the limits that have changed, and those that were set long ago.
func (s *Shaper) apply(limits map[string]observe.BitRate, now time.Time) {
	for uid, p := range s.pods {
		if p.network == nil {
			continue
		}
		want := limits[uid]
		if want == p.Limit && !p.unsure && (want == 0 || now.Sub(p.setAt) < checkTime) {
			continue
		}
		if p.unset != "" && now.Sub(p.setAt) < againTime {
			continue
		}
		p.setAt, p.unset = now, ""
		var err error
		if want == 0 {
			err = p.network.Release()
		} else if err = s.note(); err == nil {
			err = p.network.Limit(int64(want))
		}
		if err != nil {
			p.unset, p.unsure = err.Error(), true
			continue
		}
		p.Limit, p.unsure = want, false
	}
}

// publish makes the latest reading and the state of the pods known.
func (s *Shaper) publish(reading observe.Egress, interval time.Duration) {
	reading.Pods = make(map[string]observe.PodEgress, len(s.pods))
	for uid, p := range s.pods {
		p.Problem = cmp.Or(p.unread, p.unset)
		reading.Pods[uid] = p.PodEgress
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest, s.dueAt = reading, time.Time{}
	if s.link != nil {
		s.dueAt = time.Now().Add(interval + lateTime)
	}
}
