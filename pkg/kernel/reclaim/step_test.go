package reclaim

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/pkg/knobs"
)

const (
	mib = knobs.Bytes(1) << 20
	gib = knobs.Bytes(1) << 30
)

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// look is one of a series of observations, some time after the previous one, and the expected
// step.
type look struct {
	after    time.Duration
	current  knobs.Bytes
	limit    knobs.Bytes
	cache    knobs.Bytes
	pressure float64
	want     knobs.Bytes
	short    bool // the kernel reclaims less than requested
}

func TestStep(t *testing.T) {
	t.Parallel()
	const s = time.Second
	const limit = 10240 * mib
	ninety := Target{StartAt: 9216 * mib, Until: 8704 * mib} // start at 90 %, and stop 5 % below
	for name, test := range map[string]struct {
		target Target
		looks  []look
	}{
		"below the mark": {ninety, []look{{current: 9216 * mib, limit: limit}}},
		"down to the lower mark": {ninety, []look{
			{current: 9217 * mib, limit: limit, want: 10240 * mib / 100 / page * page},
			{after: s, current: 8754 * mib, limit: limit, want: 50 * mib},
			{after: s, current: 8704 * mib, limit: limit},
			{after: s, current: 9000 * mib, limit: limit},
		}},
		"the least bound": {Target{StartAt: 500 * mib, Until: 400 * mib}, []look{{current: 600 * mib, limit: 1000 * mib, want: 64 * mib}}},
		"not closer than": {ninety, []look{{current: limit, limit: limit, want: limit / 100 / page * page}, {after: 99 * time.Millisecond, current: limit, limit: limit}}},
		"no limit":        {ninety, []look{{current: 1 << 50, limit: knobs.Max, want: 64 * mib}}},
		"off":             {Target{}, []look{{current: limit, limit: limit, cache: limit}}},
		"until nothing":   {Target{StartAt: 10 * mib}, []look{{current: 20*mib + 1, limit: gib, want: 20 * mib}}},
		"unused memory, every six seconds": {Target{Offload: true}, []look{
			{current: 2000 * mib, limit: knobs.Max, want: mib},
			{after: 5 * s, current: 2000 * mib, limit: knobs.Max},
			{after: s, current: 1000 * mib, limit: knobs.Max, want: mib / 2},
		}},
		"less of it under a little pressure": {Target{Offload: true}, []look{
			{current: 2000 * mib, limit: limit, pressure: 0.05, want: mib / 2},
			{after: 6 * s, current: 2000 * mib, limit: limit, pressure: 0.1},
			{after: 6 * s, current: 2000 * mib, limit: limit, pressure: 7},
		}},
		"unused memory that the kernel does not find": {Target{Offload: true}, []look{
			{current: 2000 * mib, limit: limit, want: mib, short: true},
			{after: 6 * s, current: 2000 * mib, limit: limit, want: mib, short: true},
			{after: 6 * s, current: 2000 * mib, limit: limit, want: mib, short: true},
			{after: 6 * s, current: 2000 * mib, limit: limit, want: mib, short: true},
			{after: 6 * s, current: 2000 * mib, limit: limit},
		}},
		"unused memory of a container at its mark": {Target{StartAt: 900 * mib, Until: 850 * mib, Offload: true}, []look{
			{current: 902 * mib, limit: 1000 * mib, want: 52 * mib},
			{after: s, current: 850 * mib, limit: 1000 * mib, want: 850 * mib / 2000 / page * page},
		}},
		"pressure unknown": {ninety, []look{{current: limit, limit: limit, pressure: -1}, {current: limit, limit: limit, want: limit / 100 / page * page}}},
		"paused until pressure is low": {ninety, []look{
			{current: limit, limit: limit, pressure: 10.1},
			{after: s, current: limit, limit: limit, pressure: 7},
			{after: s, current: limit, limit: limit, pressure: 5, want: limit / 100 / page * page},
			{after: s, current: limit, limit: limit, pressure: 7, want: limit / 100 / page * page},
		}},
		"a pause outlasts a new limit": {ninety, []look{
			{current: limit, limit: limit, pressure: 11},
			{after: s, current: limit, limit: limit + gib, pressure: 6},
		}},
		"grace grows and ends": {ninety, []look{
			{current: limit, limit: limit, want: limit / 100 / page * page, short: true},
			{after: s - 1, current: limit, limit: limit},
			{after: 1, current: limit, limit: limit, want: limit / 100 / page * page, short: true},
			{after: 2*s - 1, current: limit, limit: limit},
			{after: 1, current: limit, limit: limit, want: limit / 100 / page * page},
			{after: s / 10, current: limit, limit: limit, want: limit / 100 / page * page, short: true},
			{after: s, current: limit, limit: limit, want: limit / 100 / page * page},
		}},
		"somebody raises the limit": {ninety, []look{
			{current: 9500 * mib, limit: limit, want: limit / 100 / page * page, short: true},
			{after: 1, current: 9400 * mib, limit: 2 * limit},
			{after: 1, current: 18432 * mib, limit: 2 * limit},
			{after: 1, current: 18433 * mib, limit: 2 * limit, want: 2 * limit / 100 / page * page},
		}},
		"somebody lowers the limit": {ninety, []look{
			{current: 4700 * mib, limit: limit},
			{after: 1, current: 4700 * mib, limit: limit / 2, want: 64 * mib},
			{after: s, current: 4353 * mib, limit: limit / 2, want: mib},
			{after: s, current: 4352 * mib, limit: limit / 2},
		}},
		"the limit comes later": {ninety, []look{
			{current: 9000 * mib, limit: knobs.Max},
			{after: 1, current: 9000 * mib, limit: limit},
			{after: 1, current: 9000 * mib, limit: knobs.Max},
			{after: 1, current: 9217 * mib, limit: limit, want: limit / 100 / page * page},
			{after: s, current: 9300 * mib, limit: knobs.Max, want: 64 * mib},
		}},
		"the cache": {Target{CacheMax: 160 * mib}, []look{
			{current: gib, limit: knobs.Max, cache: 160 * mib},
			{after: s, current: gib, limit: knobs.Max, cache: 161 * mib, want: 11 * mib},
			{after: s, current: gib, limit: knobs.Max, cache: 155 * mib, want: 5 * mib},
			{after: s, current: gib, limit: knobs.Max, cache: 150 * mib},
			{after: s, current: gib, limit: knobs.Max, cache: 155 * mib},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var state State
			var got knobs.Bytes
			now := start()
			for n, l := range test.looks {
				now = now.Add(l.after)
				state, got = Step(test.target, state, Observation{l.current, l.limit, l.cache, l.pressure}, now)
				if got != l.want {
					t.Errorf("look %d: reclaims %d, want %d", n, got, l.want)
				}
				if got > 0 {
					state = state.After(l.short, now)
				}
			}
		})
	}
}

// A new target refers to the limit in force at that time.
func TestTargetChanges(t *testing.T) {
	t.Parallel()
	state, now := State{}, start()
	for _, want := range []struct {
		limit, start, current, bytes knobs.Bytes
	}{
		{gib, gib / 2, gib / 4, 0},
		{2 * gib, gib / 2, gib/2 + mib, 0},
		{2 * gib, gib / 4, gib/4 + mib, mib},
		{gib, gib / 4, gib/8 + 2*mib, 2 * mib},
	} {
		now = now.Add(time.Second)
		var got knobs.Bytes
		state, got = Step(Target{StartAt: want.start, Until: want.start}, state, Observation{Current: want.current, Max: want.limit}, now)
		if got != want.bytes {
			t.Errorf("%+v: reclaims %d", want, got)
		}
	}
}

func TestGraceHasAnEnd(t *testing.T) {
	t.Parallel()
	state, now := State{}, start()
	for range 100 {
		state = state.After(true, now)
	}
	if wait := state.notBefore.Sub(now); wait != time.Minute {
		t.Errorf("waits %s", wait)
	}
}

// Whatever is observed, no step exceeds its bound or the distance to its target, none is made
// under pressure or too early, and in the end there are none.
func TestStepStaysInBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := func(label string, most knobs.Bytes) knobs.Bytes {
			return knobs.Bytes(rapid.Int64Range(0, int64(most)).Draw(t, label))
		}
		target := Target{StartAt: amount("start", 8*gib), CacheMax: amount("cache limit", 4*gib)}
		target.Until = amount("until", target.StartAt)
		var state State
		now := start()
		var last, grace time.Time
		var limit, base knobs.Bytes
		for range rapid.IntRange(1, 50).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "after")))
			o := Observation{
				Current:  amount("current", 8*gib),
				Max:      rapid.SampledFrom([]knobs.Bytes{knobs.Max, 0, 4095, gib, 8 * gib, 1<<63 - 4096}).Draw(t, "limit"),
				Pressure: rapid.Float64Range(-1, 20).Draw(t, "pressure"),
			}
			o.File = amount("cache", o.Current)
			if base <= 0 {
				base = o.Max
			}
			if o.Max != limit {
				limit, last, grace = o.Max, time.Time{}, time.Time{}
			}
			var bytes knobs.Bytes
			state, bytes = Step(target, state, o, now)
			if bytes == 0 {
				continue
			}
			until := target.Until
			if o.Max > 0 && base > 0 && o.Max != base {
				until = min(knobs.Bytes(float64(until)*(float64(o.Max)/float64(base))), o.Max)
			}
			switch {
			case bytes < 0 || bytes%4096 != 0 || bytes > o.Current:
				t.Fatalf("%d of %d bytes", bytes, o.Current)
			case bytes > 64*mib && bytes > o.Max/100:
				t.Fatalf("%d bytes at a limit of %d", bytes, o.Max)
			case (target.StartAt == 0 || o.Current-bytes < until) && (target.CacheMax == 0 || o.File-bytes < target.CacheMax-target.CacheMax/16):
				t.Fatalf("%d bytes of %+v for %+v", bytes, o, target)
			case o.Pressure > 10 || o.Pressure < 0:
				t.Fatalf("%d bytes under pressure", bytes)
			case now.Before(last.Add(100*time.Millisecond)) || now.Before(grace):
				t.Fatalf("%d bytes too early", bytes)
			}
			last = now
			short := rapid.Bool().Draw(t, "short")
			if state = state.After(short, now); short {
				grace = now.Add(time.Second)
			}
		}
		for n := 0; ; n++ {
			now = now.Add(time.Minute)
			var bytes knobs.Bytes
			if state, bytes = Step(target, state, Observation{Max: limit}, now); bytes == 0 {
				break
			} else if n > 0 {
				t.Fatalf("an empty cgroup gives %d bytes", bytes)
			}
		}
	})
}
