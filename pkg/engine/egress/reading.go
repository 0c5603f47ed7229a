package egress

import (
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// device is a device of the node's link.
type device struct {
	name string
	rate observe.ByteRate
}

// read reads all counters.
func (s *Shaper) read(link *Link, now time.Time) observe.Egress {
	for _, p := range s.pods {
		if p.network == nil {
			continue
		}
		if !s.count(p) {
			continue
		}
		if rate, known := p.rate.Add(now, p.bytes); known {
			p.At, p.Sent = now, rate
		}
	}
	next := observe.Egress{At: now}
	if err := s.readLink(link, now, &next); err != nil {
		next.Problem = err.Error()
	}
	return next
}

// count reads what a pod has sent, and reports whether that was possible. All that a pod has sent before its first
// reading counts as sent since the reading before.
func (s *Shaper) count(p *pod) bool {
	sent, err := p.network.Sent()
	if err != nil {
		p.unread = err.Error()
		return false
	}
	if sent > p.bytes { // it goes back when a device goes
		s.bytes += sent - p.bytes
	}
	p.bytes, p.unread = sent, ""
	return true
}

// readLink reads the node's link.
func (s *Shaper) readLink(link *Link, now time.Time, into *observe.Egress) error {
	if s.foundFor != link || now.Sub(s.foundAt) >= findTime {
		s.found, s.unknown = link.Find(s.host)
		s.foundFor, s.foundAt = link, now
	}
	if into.Devices, into.Speed = s.found.Devices, s.found.Speed; len(into.Devices) == 0 {
		return s.unknown
	}
	same := func(d device, name string) bool { return d.name == name }
	if !slices.EqualFunc(s.links, into.Devices, same) {
		s.links, s.bytesRate = nil, observe.ByteRate{}
		for _, name := range into.Devices {
			s.links = append(s.links, device{name: name, rate: observe.ByteRate{Lazy: lazyTime}})
		}
	}
	all, changed := true, false
	for i := range s.links {
		d := &s.links[i]
		sent, err := s.host.Sent(d.name)
		if err != nil {
			s.foundFor = nil // another device may have taken its place
			return err
		}
		rate, known := d.rate.Add(now, sent)
		into.Sent += rate
		all, changed = all && known, changed || d.rate.Changed().Equal(now)
	}
	if changed { // so that both rates are of the same time
		rate, known := s.bytesRate.Add(now, s.bytes)
		s.batch, all = rate, all && known
	}
	into.Batch = s.batch
	if !all {
		into.At = time.Time{} // a rate needs two readings
	}
	return s.unknown
}
