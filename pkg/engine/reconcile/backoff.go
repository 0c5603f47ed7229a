package reconcile

import "time"

// Backoff delays repeated attempts: the first ones are made at once, and each further one waits
// twice as long as the one before, up to a maximum. The zero value has counted no attempt.
type Backoff struct {
	attempts int       // attempts in a row
	until    time.Time // the next attempt waits until this time
}

// policy is how a Backoff delays attempts.
type policy struct {
	atOnce         int           // delay of the first delayed attempt, doubled with each further one up to longest
	first, longest time.Duration // delay of the first delayed attempt, which doubles with each further one up to longest
}

// resetAfter is how long an attempt must be absent, after its delay has ended, before the count
// restarts. It is less than a minute because systemd rewrites all files of the kubelet's QoS
// classes each time the kubelet writes their weights, once a minute; that must not count as
// contested.
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

// resetAt is when the count restarts if there is no attempt until then.
func (b *Backoff) resetAt() time.Time { return b.until.Add(resetAfter) }

// Contested reports whether another program keeps changing the repaired value: repairs are
// delayed, and the count has not restarted since.
func (b *Backoff) Contested(now time.Time) bool {
	return b.attempts >= RepairsAtOnce && now.Before(b.resetAt())
}

// Notice is the end of the log message about the repair that was counted last; "" if the next
// repair isn't delayed.
func (b *Backoff) Notice(now time.Time) string {
	if b.Contested(now) {
		return "; as this happens again and again, the next repair waits"
	}
	return ""
}
