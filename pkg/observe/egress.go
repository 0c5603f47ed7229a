package observe

import (
	"strconv"
	"time"
)

// BitRate is an amount of bits per second.
type BitRate int64

// String formats it for people: "1.5 Gbit/s", "640 Mbit/s".
func (r BitRate) String() string {
	for _, unit := range []struct {
		bits BitRate
		name string
	}{{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}} {
		if r >= unit.bits {
			return strconv.FormatFloat(float64(r/(unit.bits/10))/10, 'f', -1, 64) + " " + unit.name
		}
	}
	return strconv.FormatInt(int64(r), 10) + " bit/s"
}

// Egress is what the node and its pods of batch work send.
type Egress struct {
	At      time.Time // of the reading; zero before the first
	Devices []string  // of the node's link; must not be modified
	Speed   BitRate   // of the link; 0 if unknown
	Sent    BitRate   // on the link
	Batch   BitRate   // what the pods of batch work sent while the link sent that
	Problem string    // why the link can't be read; "" if it can

	Pods map[string]PodEgress // by UID; must not be modified
}

// PodEgress is what a pod sends on its own network.
type PodEgress struct {
	At      time.Time // of the reading; zero before the first
	Sent    BitRate   // to wherever, also to other pods of the node
	Limit   BitRate   // that Sluice has set; 0 for none
	Problem string    // why the pod can't be read or limited; "" if it can
}

// ByteRate turns readings of a counter of bytes into a rate.
type ByteRate struct {
	// Lazy is the longest time between two updates of the counter by the kernel: some drivers update a
	// device's counters once a second.
	Lazy time.Duration

	bytes   uint64
	changed time.Time // when the counter was read with its present value first; zero before the first reading
	rate    BitRate
}

// Changed returns when the counter was read with its present value first. The rate is of the time until then.
func (r *ByteRate) Changed() time.Time { return r.changed }

// Add enters a reading and returns the rate. It is unknown after the first reading, and after the counter or the
// clock went back.
func (r *ByteRate) Add(at time.Time, bytes uint64) (rate BitRate, known bool) {
	passed := at.Sub(r.changed)
	switch {
	case r.changed.IsZero() || bytes < r.bytes || passed <= 0:
		*r = ByteRate{Lazy: r.Lazy, bytes: bytes, changed: at}
		return 0, false
	case bytes == r.bytes && passed <= r.Lazy:
		return r.rate, true
	}
	r.rate = BitRate(float64(bytes-r.bytes) * 8 / passed.Seconds())
	r.bytes, r.changed = bytes, at
	return r.rate, true
}
