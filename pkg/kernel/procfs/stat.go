package procfs

import (
	"bytes"
	"math"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
)

// tick is the unit of /proc/stat: USER_HZ is 100 on all platforms on which Linux runs
// containers.
const tick = 10 * time.Millisecond

// mostCPUs limits the memory that a corrupt file can make CPUTimes allocate; the kernel's own
// limit is 8192.
const mostCPUs = 1 << 14

// CPUTimes reads /proc/stat and reuses the memory of an earlier reading. It stops before the
// numbers of each interrupt, which follow the CPUs.
func (f *FS) CPUTimes(into []observe.CPUTime) ([]observe.CPUTime, error) {
	text, err := f.read(&f.stat, []byte("\nintr "))
	if err != nil {
		return into, err
	}
	return parseStat(text, into), nil
}

// parseStat reads the lines "cpu7 user nice system idle iowait irq softirq steal guest
// guest_nice", in ticks. Guest time is included in user and nice (account_guest_time). A CPU
// that is offline has no line.
func parseStat(text []byte, into []observe.CPUTime) []observe.CPUTime {
	into = into[:0]
	for len(text) > 0 {
		line, rest := cut(text)
		text = rest
		if !bytes.HasPrefix(line, []byte("cpu")) {
			break
		}
		line = line[len("cpu"):]
		id, fields := number(line)
		if len(line) == 0 || line[0] == ' ' || len(fields) == len(line) || id >= mostCPUs {
			continue // this line is the sum of all CPUs
		}
		for int64(len(into)) <= id {
			into = append(into, observe.CPUTime{})
		}
		var ticks [8]time.Duration
		for i := range ticks {
			var n int64
			n, fields = number(fields)
			ticks[i] = time.Duration(min(n, math.MaxInt64/int64(tick)/8)) * tick
		}
		into[id] = observe.CPUTime{
			Online: true,
			Busy:   ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6],
			Idle:   ticks[3], IOWait: ticks[4], Steal: ticks[7],
		}
	}
	return into
}
