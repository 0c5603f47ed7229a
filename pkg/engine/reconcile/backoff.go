package reconcile

import "time"

// Backoff delays repeated attempts: the first ones are made at once, and each further one
// waits twice as long as the one before, up to a maximum. The zero value has seen none.
type Backoff struct {
	attempts int       // in a row
	until    time.Time // no attempt before it
}

// policy is how a Backoff delays.
type policy struct {
	atOnce         int           // attempts in a row before the first delay
	first, longest time.Duration // delay, doubled with each further attempt
}

// resetAfter is how long an attempt must be absent, after its delay has ended, before the
// count starts again. It is less than the minute in which the kubelet writes its QoS
// classes' weights, whereupon systemd writes all of their files: that is no contest.
const resetAfter = 30 * time.Second

// RepairsAtOnce is how many repairs in a row are made without a delay.
const RepairsAtOnce = 5

// repairs is the policy for repairs of a knob that somebody else may keep changing.
func repairs() policy {
	return policy{atOnce: RepairsAtOnce, first: 10 * time.Second, longest: 10 * time.Minute}
}

// Waits reports whether it is too early for another attempt.
func (b *Backoff) Waits(now time.Time) bool { return now.Before(b.until) }

// add counts an attempt.
func (b *Backoff) add(now time.Time, p policy) {
	if now.After(b.resetAt()) {
		b.attempts = 0
	}
	b.attempts++
	b.until = now
	if over := b.attempts - p.atOnce; over >= 0 {
		b.until = now.Add(min(p.first<<min(over, 10), p.longest))
	}
}

// resetAt is when the count starts again if nothing is attempted until then.
func (b *Backoff) resetAt() time.Time { return b.until.Add(resetAfter) }

// Contested reports whether somebody else keeps changing what is repaired: repairs are
// delayed, and the count has not started again since.
func (b *Backoff) Contested(now time.Time) bool {
	return b.attempts >= RepairsAtOnce && now.Before(b.resetAt())
}

// Notice is what the log says of the repair that was counted last, "" where the next one
// isn't delayed.
func (b *Backoff) Notice(now time.Time) string {
	if b.Contested(now) {
		return "; as this happens again and again, the next repair waits"
	}
	return ""
}
