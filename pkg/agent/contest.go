package agent

import "time"

// contest is a setting that somebody else may be changing as well. Repairs are
// made at once until they have become too many; then each waits longer, so that
// two writers never end in a loop.
type contest struct {
	repairs int       // in a row
	last    time.Time // repair
	until   time.Time // no repair before
}

const (
	patience    = 5                // repairs in a row before the first wait
	firstWait   = 10 * time.Second // doubled with each further repair
	longestWait = 10 * time.Minute
	calm        = time.Minute // without a change by somebody else, beyond the wait, ends the row
)

// waits reports whether a repair must wait.
func (c *contest) waits(now time.Time) bool { return now.Before(c.until) }

// repaired notes a repair.
func (c *contest) repaired(now time.Time) {
	if now.After(c.until.Add(calm)) {
		c.repairs = 0
	}
	c.repairs++
	c.last, c.until = now, now
	if over := c.repairs - patience; over >= 0 {
		c.until = now.Add(min(firstWait<<min(over, 10), longestWait))
	}
}

// lost reports whether somebody else keeps changing the setting.
func (c *contest) lost(now time.Time) bool {
	return c.repairs >= patience && now.Before(c.until.Add(calm))
}
